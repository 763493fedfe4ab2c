/**
 * What workflow code may reach: itself, two packages of Temporal's, and types. Read from the
 * sources, file by file, from the entry that is bundled.
 */
import { existsSync, readFileSync } from 'node:fs';
import { dirname, join, relative, resolve } from 'node:path';
import { expect, test } from 'vitest';
import ts from 'typescript';
import { root } from '../../cli/root.js';

interface Import {
  file: string;
  from: string;
  typeOnly: boolean;
}

const allowedPackages = ['@temporalio/common', '@temporalio/workflow'];

test('workflow code imports only itself, @temporalio/workflow and @temporalio/common; db and activities as types', () => {
  const imports = reachedFrom('workflows/index.ts', 'workflows/payloadConverter.ts');
  expect(imports.length).toBeGreaterThan(20);
  const wrong = imports.filter(({ file, from, typeOnly }) =>
    from.startsWith('.')
      ? !typeOnly && !relative(root, resolve(root, dirname(file), from)).startsWith('workflows/')
      : !allowedPackages.includes(from),
  );
  expect(wrong).toEqual([]);
});

test('workflow code never reaches the contract, which holds a client', () => {
  const files = new Set(
    reachedFrom('workflows/index.ts', 'workflows/payloadConverter.ts').map(({ file }) => file),
  );
  expect([...files].filter((file) => file.startsWith('workflows/contract'))).toEqual([]);
  expect(files).toContain('workflows/hold.ts');
});

test('F36: workflow code has no loop that could keep its thread: each awaits in its body', () => {
  const entries = reachedFrom('workflows/index.ts', 'workflows/payloadConverter.ts');
  const files = [...new Set(entries.map(({ file }) => file))];
  const loops = files.flatMap((file) => loopsOf(file, readFileSync(join(root, file), 'utf8')));
  expect(loops.length).toBeGreaterThan(2);
  expect(loops.filter(({ awaits }) => !awaits)).toEqual([]);
  const bad = 'async function f() { for (;;) { g(async () => { await h(); }); } }';
  expect(loopsOf('bad.ts', bad)).toEqual([{ file: 'bad.ts', line: 1, awaits: false }]);
});

test('activities import db and @temporalio/activity only; the contract imports no change of stock', () => {
  const activities = importsOf('activities/index.ts').concat(importsOf('activities/attempt.ts'));
  const packages = activities.map(({ from }) => from).filter((from) => !from.startsWith('.'));
  expect(new Set(packages)).toEqual(new Set(['@temporalio/activity']));
  const ofContract = reachedFrom('workflows/contract.ts').filter(
    ({ from, typeOnly }) => /\/db\//.test(from) && !typeOnly,
  );
  expect(ofContract).toEqual([]);
});

/** The imports of these files and of all that they reach at run time. */
function reachedFrom(...entries: string[]): Import[] {
  const seen = new Set<string>();
  const found: Import[] = [];
  const visit = (file: string) => {
    if (seen.has(file)) return;
    seen.add(file);
    for (const one of importsOf(file)) {
      found.push(one);
      if (one.typeOnly || !one.from.startsWith('.')) continue;
      const next = relative(root, resolve(root, dirname(file), one.from)).replace(/\.js$/, '.ts');
      if (existsSync(join(root, next))) visit(next);
    }
  };
  entries.forEach(visit);
  return found;
}

/** Loops, and whether their own body awaits: an `await` of a function inside does not count. */
function loopsOf(file: string, text: string): { file: string; line: number; awaits: boolean }[] {
  const source = ts.createSourceFile(file, text, ts.ScriptTarget.ES2022, true);
  const awaits = (node: ts.Node): boolean =>
    ts.isAwaitExpression(node) ||
    (!ts.isFunctionLike(node) && (ts.forEachChild(node, (child) => awaits(child)) ?? false));
  const found: { file: string; line: number; awaits: boolean }[] = [];
  const visit = (node: ts.Node): void => {
    // for..of goes over a list of lines or messages, which ends.
    if (ts.isIterationStatement(node, false) && !ts.isForOfStatement(node)) {
      const line = source.getLineAndCharacterOfPosition(node.getStart()).line + 1;
      found.push({ file, line, awaits: awaits(node.statement) });
    }
    ts.forEachChild(node, visit);
  };
  visit(source);
  return found;
}

function importsOf(file: string): Import[] {
  const source = ts.createSourceFile(
    file,
    readFileSync(join(root, file), 'utf8'),
    ts.ScriptTarget.ES2022,
    true,
  );
  const found: Import[] = [];
  const visit = (node: ts.Node): void => {
    if (ts.isImportDeclaration(node) && ts.isStringLiteral(node.moduleSpecifier)) {
      const typeOnly = node.importClause?.isTypeOnly ?? false;
      found.push({ file, from: node.moduleSpecifier.text, typeOnly });
    } else if (ts.isExportDeclaration(node) && node.moduleSpecifier) {
      const from = (node.moduleSpecifier as ts.StringLiteral).text;
      found.push({ file, from, typeOnly: node.isTypeOnly });
    } else if (ts.isCallExpression(node) && node.expression.kind === ts.SyntaxKind.ImportKeyword) {
      found.push({ file, from: node.arguments[0]!.getText(), typeOnly: false });
    }
    ts.forEachChild(node, visit);
  };
  visit(source);
  return found;
}
