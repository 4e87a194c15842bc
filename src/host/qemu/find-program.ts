import { delimiter, join } from 'node:path'
import { AgentError } from '../../base/errors.ts'

/** Where a program may be, in the order in which execvp(3) looks; `others`: folders after those of PATH. */
export function placesOf(program: string, others: readonly string[] = []): readonly string[] {
  if (program.includes('/')) return [program]
  return [...(process.env.PATH ?? '').split(delimiter), ...others]
    .filter((folder) => folder.startsWith('/'))
    .map((folder) => join(folder, program))
}

export function noSuchProgram(program: string): AgentError {
  return new AgentError(
    'FAILED_PRECONDITION',
    `${program}: no such program; ./microvm doctor names its package`,
  )
}
