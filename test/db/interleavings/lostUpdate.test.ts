import type pg from 'pg';
import { describeEachPostgres } from '../../setup/database.js';
import { expect, it } from 'vitest';
import { codeOf } from '../clients.js';
import { whenWaiting } from '../rivals.js';
import { sharedShop } from '../shop.js';

/** One checkout in psql: reads the bin, decides in its own head, writes what it has decided. */
class Order {
  readonly client: pg.Client;
  readonly read: string;
  reserved = 0;
  free = 0;
  promised = 0;
  errors: string[] = [];

  constructor(client: pg.Client, read: string) {
    this.client = client;
    this.read = read;
  }

  async begin(): Promise<void> {
    await this.client.query('begin');
    const { rows } = await this.client.query<{ quantity: number; reserved_quantity: number }>(
      this.read,
    );
    this.reserved = rows[0]!.reserved_quantity;
    this.free = rows[0]!.quantity - this.reserved;
  }

  /** All three units or none. */
  async reserve(): Promise<void> {
    if (this.free < 3) return;
    const write = `update scratch.bin_inventories set reserved_quantity = ${this.reserved + 3} where id = 1`;
    const code = await codeOf(this.client.query(write));
    if (code === 'done') this.promised = 3;
    else this.errors.push(code);
  }

  async end(): Promise<void> {
    await this.client.query(this.promised > 0 ? 'commit' : 'rollback');
  }
}

describeEachPostgres('two buyers, one product with three units, in psql', (version) => {
  const shop = sharedShop(version);
  const unlocked = `select * from scratch.bin_inventories where sku = 'SKU-C' order by id`;
  const locked = `${unlocked} for update`;

  async function twoOrders(read: string): Promise<[Order, Order]> {
    await shop.query(`drop schema if exists scratch cascade; create schema scratch;
      create table scratch.bin_inventories (
        id integer primary key, sku text, quantity integer, reserved_quantity integer not null,
        constraint no_more_than_there_is check (reserved_quantity <= quantity));
      insert into scratch.bin_inventories values (1, 'SKU-C', 3, 0)`);
    return [new Order(await shop.session(), read), new Order(await shop.session(), read)];
  }
  const onShelf = () =>
    shop.query('select quantity, reserved_quantity from scratch.bin_inventories');

  it('R20: both read without a lock and both write 3 of 3: six units are promised, without an error and with no constraint broken', async () => {
    const [a, b] = await twoOrders(unlocked);
    await a.begin();
    await b.begin();
    await a.reserve();
    const writing = b.reserve();
    // The write waits for the row, but what it will write was decided before.
    await whenWaiting(shop, 'update scratch.bin_inventories');
    await a.end();
    await writing;
    await b.end();
    expect([a.promised, b.promised]).toEqual([3, 3]);
    expect([...a.errors, ...b.errors]).toEqual([]);
    expect(await onShelf()).toEqual([{ quantity: 3, reserved_quantity: 3 }]);
  });

  it('R21: with the locking read the read waits: one is served, the other reads the true count and is refused', async () => {
    const [a, b] = await twoOrders(locked);
    await a.begin();
    const reading = b.begin();
    await whenWaiting(shop, 'for update');
    await a.reserve();
    await a.end();
    await reading;
    expect(b.free).toBe(0);
    await b.reserve();
    await b.end();
    expect([a.promised, b.promised]).toEqual([3, 0]);
    expect([...a.errors, ...b.errors]).toEqual([]);
    expect(await onShelf()).toEqual([{ quantity: 3, reserved_quantity: 3 }]);
  });

  it('R21: when the first gives up, the second is served', async () => {
    const [a, b] = await twoOrders(locked);
    await a.begin();
    const reading = b.begin();
    await whenWaiting(shop, 'for update');
    await a.client.query('rollback');
    await reading;
    await b.reserve();
    await b.end();
    expect([a.promised, b.promised]).toEqual([0, 3]);
  });
});
