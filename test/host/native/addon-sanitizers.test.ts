import { globSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { expect, it } from 'vitest'
import { runVitest } from '../../../scripts/test/run-vitest.ts'
import { buildSanitizedAddon } from '../../../src/build/native.ts'
import { projectRoot } from '../../../src/build/project.ts'
import { ADDON_FOLDER } from '../../support/os/real-native.ts'
import { run } from '../../support/vminit/supervised.ts'

function testsOfTheAddon(): readonly string[] {
  return globSync('test/os/**/*.test.ts', { cwd: projectRoot })
    .filter((path) => readFileSync(join(projectRoot, path), 'utf8').includes('realNative('))
    .sort()
}

/** Leaves out the variables of the vitest that runs this test. */
async function sanitizerEnvironment(): Promise<NodeJS.ProcessEnv> {
  const { stdout } = await run(['cc', '-print-file-name=libasan.so'])
  return {
    PATH: process.env.PATH,
    [ADDON_FOLDER]: dirname(await buildSanitizedAddon()),
    // Node itself is built without sanitizers, and libasan must be loaded before every other library.
    LD_PRELOAD: stdout.trim(),
    // Node does not free all of its memory when it exits.
    ASAN_OPTIONS: 'detect_leaks=0',
  }
}

it('the addon passes its unit tests under ASan and UBSan', { timeout: 240_000 }, async () => {
  const patterns = testsOfTheAddon()
  expect(patterns.length).toBeGreaterThan(10)
  let output = ''
  const counts = await runVitest({
    root: projectRoot,
    project: 'unit',
    patterns,
    write: (text) => {
      output += text
    },
    env: await sanitizerEnvironment(),
  })
  expect(counts, output).toMatchObject({ failed: 0, skipped: [] })
  expect(counts.passed).toBeGreaterThan(100)
})
