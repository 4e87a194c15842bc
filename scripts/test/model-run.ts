import { readRun } from './read-run.ts'

export const COMMANDS_A_CASE = 25

/** The model's share of 1,000 cases of the fuzz group. */
export const MODEL_SHARE = 2

export interface ModelRun {
  /** Cases of the whole fuzz group; the model has its share of them. */
  readonly cases: number
  readonly seed: number
}

/** Throws an error that names the wrong word. */
export function readModelRun(args: readonly string[]): ModelRun {
  const { numbers, seed } = readRun(args, ['commands'])
  const commands = numbers.get('commands')
  if (commands === undefined) throw new Error('--commands: is missing, want --commands N')
  return { cases: (Math.ceil(commands / COMMANDS_A_CASE) * 1000) / MODEL_SHARE, seed }
}
