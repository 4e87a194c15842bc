import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { transformSync } from 'esbuild'
import { projectRoot } from '../../src/build/project.ts'
import { type Caller, playCaller } from '../support/kills/callers.ts'

const PROGRAM = join(projectRoot, 'test/kills/die-at-step.ts')

export interface Plan {
  readonly most: number
  /** The fraction of all steps that `seed` chooses. */
  readonly chance: number
  readonly seed: number
}

/**
 * Replays a caller whose agent dies in each call at a step that is new for this `folder`, then perhaps while the next agent
 * restores. Returns the names of the steps.
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
  // Agents start a third faster without type stripping.
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
  const died = deaths()
  // The last of `most` deaths may be at a start.
  if (died.length < plan.most && linesOf(join(replay, 'calls')).length === 0)
    throw new Error('the agents have followed no call')
  return died
}

function linesOf(file: string): readonly string[] {
  return existsSync(file) ? readFileSync(file, 'utf8').split('\n').filter(Boolean) : []
}
