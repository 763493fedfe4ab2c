const once = globalThis as { [key: symbol]: true | undefined };
const watching = Symbol.for('tahan.test.orphan');

/**
 * A test process ends with vitest, also when that was killed with -9 in the middle of a test. This is
 * read before each file, and a process runs many.
 */
if (!once[watching]) {
  once[watching] = true;
  process.once('disconnect', () => process.exit(1));
}
