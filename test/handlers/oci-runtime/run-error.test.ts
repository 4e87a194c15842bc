import { describe, expect, it } from 'vitest'
import { runError } from '../../../src/handlers/oci-runtime/run-error.ts'
import type { ToolResult } from '../../../src/os/process/tools.ts'

const failed = { exitCode: 1, stdout: '', stderr: '' }
const line = (level: string, msg: string) => `${JSON.stringify({ level, msg, time: 'now' })}\n`

/** The error of a run that was to start `program`. */
const errorOf = (log: string, { result = failed, program }: { result?: ToolResult; program?: string } = {}) =>
  runError({ what: 'x', result, log, program })

describe('runError', () => {
  it('tells the last error of the log', () => {
    const log = line('warning', 'w') + line('error', 'first') + line('error', 'last') + line('info', 'i')
    expect(errorOf(log)).toMatchObject({ code: 'INTERNAL', message: 'x: last' })
  })

  it.each([
    ['stderr when the log has no error', { ...failed, stderr: 'oh no\n' }, line('info', 'i'), 'x: oh no'],
    ['the exit code when there is nothing else', { ...failed, exitCode: 137 }, '', 'x: exit code 137'],
    ['what is whole of a log that was cut off', failed, `${line('error', 'e')}{"level":"err`, 'x: e'],
    [
      'nothing of lines that are no log',
      failed,
      'null\n[]\n"error"\n{"level":"error","msg":1}\n',
      'x: exit code 1',
    ],
  ])('tells %s', (_what, result, log, message) => {
    expect(errorOf(log, { result }).message).toBe(message)
  })

  it.each([
    ['runc, by name', 'exec failed: exec: "x": executable file not found in $PATH', 'was not found'],
    ['runc, by path', 'exec: "/bin/x y": stat /bin/x y: no such file or directory', 'was not found'],
    ['crun', 'executable file `x` not found in $PATH: No such file or directory', 'was not found'],
    ['runc, not executable', 'exec failed: exec: "/bin/x": permission denied', 'cannot be executed'],
    ['crun, not executable', 'open executable: Permission denied', 'cannot be executed'],
    ['crun, a folder', 'open executable: Operation not permitted', 'cannot be executed'],
  ])('says in the words that callers look for what is wrong with the program: %s', (_what, msg, words) => {
    // The name is what was asked for, not what is in the text: quotes in it would be taken for the end.
    const program = `it's "x" \`y\``
    expect(errorOf(line('error', msg), { program }).message).toBe(`the file ${program} ${words}: x: ${msg}`)
  })

  it.each([
    'chdir to cwd ("/root") set in config.json failed: permission denied',
    'chdir to cwd ("/no/such") set in config.json failed: no such file or directory',
    'chdir `/no/such`: No such file or directory',
  ])('does not blame the program for another fault: %s', (msg) => {
    expect(errorOf(line('error', msg), { program: 'sh' }).message).toBe(`x: ${msg}`)
  })
})
