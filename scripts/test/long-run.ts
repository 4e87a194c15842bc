import { join } from 'node:path'
import { messageOf } from '../../src/base/errors.ts'
import { projectRoot, temporaryRoot } from '../../src/build/project.ts'
import { makeTemporaryFolder, removeTemporaryFolder } from '../../src/build/temporary-folder.ts'
import { summaryLine } from './counts.ts'
import { runVitest } from './run-vitest.ts'

export interface LongRun {
  readonly seed: number
  readonly patterns: readonly string[]
  /** The variables for the tests. `figures` is the file to which they append their figures. */
  readonly environment: (figures: string) => Readonly<Record<string, string | undefined>>
  readonly table: (figures: string) => readonly string[]
}

/** Runs the tests and prints the table, the minutes and the result. Returns 1 when a test failed, 2 when the run failed. */
export async function runLong(
  project: 'fuzz' | 'host' | 'kills' | 'vm',
  prepare: () => LongRun | Promise<LongRun>,
): Promise<number> {
  const folder = makeTemporaryFolder(temporaryRoot)
  try {
    const { seed, patterns, environment, table } = await prepare()
    const figures = join(folder, 'figures')
    const start = performance.now()
    const counts = await runVitest({
      root: projectRoot,
      project,
      patterns,
      once: true,
      write: (text) => process.stdout.write(text),
      env: { ...process.env, ...environment(figures) },
    })
    for (const line of table(figures)) console.log(line)
    console.log(`minutes: ${((performance.now() - start) / 60_000).toFixed(1)}, --seed ${seed}`)
    console.log(summaryLine(counts))
    return counts.failed > 0 ? 1 : 0
  } catch (error) {
    console.error(`${project}: ${messageOf(error)}`)
    return 2
  } finally {
    removeTemporaryFolder(folder)
  }
}
