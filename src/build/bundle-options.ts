import type { BuildOptions } from 'esbuild'
import { projectRoot } from './project.ts'

/** What all bundles have. */
export const BUNDLE_OPTIONS = {
  bundle: true,
  platform: 'node',
  // Identifiers are not shortened, so that stack traces stay readable.
  minifySyntax: true,
  minifyWhitespace: true,
  legalComments: 'none',
  absWorkingDir: projectRoot,
  logLevel: 'warning',
} as const satisfies BuildOptions
