import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { projectRoot } from '../../../src/build/project.ts'
import { type Caller, playCaller } from './callers.ts'

const PROGRAM = join(projectRoot, 'test/support/programs/die-at-step.ts')

/** At which of its steps an agent dies. */
export interface Death {
  /** Counted from 1. */
  readonly number: number
  readonly side: 'before' | 'after'
}

/** Replays a caller, and returns its steps: the writes of state and the acknowledgements, in words. */
export async function stepsOf(caller: Caller, folder: string): Promise<readonly string[]> {
  mkdirSync(folder)
  writeFileSync(join(folder, 'list'), '')
  await play(caller, folder)
  return linesOf(join(folder, 'steps'))
}

/**
 * Replays a caller whose agent dies at the first of `deaths`, the next agent at the second, and so on. Returns at which
 * steps agents have died, in words: not all where the replay has ended before.
 */
export async function playDeaths(
  caller: Caller,
  deaths: readonly Death[],
  folder: string,
): Promise<readonly string[]> {
  mkdirSync(folder)
  writeFileSync(join(folder, 'plan'), deaths.map(({ number, side }) => `${number} ${side}\n`).join(''))
  try {
    await play(caller, folder)
  } catch (error) {
    const died = linesOf(join(folder, 'deaths')).join(', then ')
    const planned = deaths.map(({ number, side }) => `${side} ${number}`).join(', then ')
    throw new Error(`died ${died} (steps ${planned}): ${error instanceof Error ? error.message : error}`, {
      cause: error,
    })
  }
  return linesOf(join(folder, 'deaths'))
}

async function play(caller: Caller, folder: string): Promise<void> {
  const environment = { NODE_OPTIONS: `--require ${PROGRAM}`, MICROVM_STEPS: folder }
  await playCaller(caller, () => async () => 0, environment)
}

function linesOf(file: string): readonly string[] {
  return existsSync(file) ? readFileSync(file, 'utf8').split('\n').filter(Boolean) : []
}
