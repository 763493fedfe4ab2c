/** A test process ends with vitest, also when that was killed with -9 in the middle of a test. */
process.once('disconnect', () => process.exit(1));
