-- A cart is a list of wishes: it holds no units and stores no price (R33). Every change of it, and the
-- claim that takes it, is made under the buyer's advisory lock; so no two of them meet.
create table tahan.carts (
  buyer_id text not null,
  sku text collate "C" not null,
  quantity integer not null,
  constraint carts_once primary key (buyer_id, sku),
  constraint carts_of_product foreign key (sku) references tahan.products (sku),
  constraint carts_buyer_length check (char_length(buyer_id) between 1 and 200),
  constraint carts_quantity_range check (quantity between 1 and 10000)
);

-- A page of orders is read from an index, whatever is asked for: all, or those of one status. Those of
-- one buyer come from holds_one_per_key.
create index orders_by_time on tahan.orders (placed_at, hold_id);
create index holds_by_status on tahan.holds (status, created_at, id);
