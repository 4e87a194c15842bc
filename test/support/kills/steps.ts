import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { transformSync } from 'esbuild'
import { projectRoot } from '../../../src/build/project.ts'
import { type Caller, playCaller } from './callers.ts'

const PROGRAM = join(projectRoot, 'test/support/programs/die-at-step.ts')

/** At which steps agents die. */
export interface Plan {
  /** So many agents may die in one replay. */
  readonly most: number
  /** The part of all steps, from 0 to 1, that is chosen; `seed` tells which. */
  readonly chance: number
  readonly seed: number
}

/**
 * Replays a caller whose agent dies at steps of the plan: in each call at one that no agent has died at in a replay with this
 * `folder`, then perhaps while the next agent restores. Returns these steps in words; none, when none was left.
 */
export async function replayWithDeaths(
  caller: Caller,
  plan: Plan,
  folder: string,
): Promise<readonly string[]> {
  const replay = join(folder, 'replay')
  rmSync(replay, { recursive: true, force: true })
  mkdirSync(replay, { recursive: true })
  writeFileSync(join(folder, 'plan'), JSON.stringify(plan))
  // Without types each of many agents starts in a third less time.
  const program = join(folder, 'die-at-step.cjs')
  writeFileSync(program, transformSync(readFileSync(PROGRAM, 'utf8'), { loader: 'ts', format: 'cjs' }).code)
  const deaths = () => linesOf(join(replay, 'deaths'))
  try {
    const environment = { NODE_OPTIONS: `--require ${program}`, MICROVM_STEPS: folder }
    await playCaller(caller, () => async () => 0, environment)
  } catch (error) {
    const text = error instanceof Error ? error.message : error
    throw new Error(`${text}\ndeaths:\n${deaths().join('\n')}`, { cause: error })
  }
  return deaths()
}

function linesOf(file: string): readonly string[] {
  return existsSync(file) ? readFileSync(file, 'utf8').split('\n').filter(Boolean) : []
}
