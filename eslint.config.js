import tseslint from 'typescript-eslint';
import { builtinModules } from 'node:module';

// Workflow code must be deterministic and its bundle small: no Node built-ins, no zod.
const notInWorkflows = [
  ...builtinModules
    .filter((name) => !name.startsWith('_'))
    .flatMap((name) => [name, `node:${name}`]),
  'zod',
];

export default tseslint.config(
  { ignores: ['dist/', 'node_modules/', '.tahan/', 'coverage/', '**/*.d.ts'] },
  ...tseslint.configs.recommendedTypeChecked,
  {
    languageOptions: {
      parserOptions: {
        projectService: { allowDefaultProject: ['*.js', 'cli/*.mjs'] },
        tsconfigRootDir: import.meta.dirname,
      },
    },
    rules: {
      '@typescript-eslint/no-floating-promises': 'error',
      '@typescript-eslint/no-misused-promises': 'error',
      '@typescript-eslint/switch-exhaustiveness-check': [
        'error',
        { considerDefaultExhaustiveForUnions: true },
      ],
      '@typescript-eslint/consistent-type-imports': 'error',
      '@typescript-eslint/no-unused-vars': [
        'error',
        { argsIgnorePattern: '^_', varsIgnorePattern: '^_' },
      ],
    },
  },
  {
    files: ['workflows/**/*.ts'],
    rules: {
      'no-restricted-imports': [
        'error',
        {
          paths: notInWorkflows.map((name) => ({
            name,
            message: 'Workflow code is deterministic: no Node built-ins and no zod.',
          })),
        },
      ],
    },
  },
  { files: ['**/*.js', '**/*.mjs'], ...tseslint.configs.disableTypeChecked },
);
