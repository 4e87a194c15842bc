import { describe, expect, it } from 'vitest'
import { AgentError } from '../../../src/base/errors.ts'
import { Hooks } from '../../../src/gen/oci.ts'
import { namingHooks, runError } from '../../../src/handlers/oci-runtime/run-error.ts'
import type { ToolResult } from '../../../src/os/process/tools.ts'

const failed = { exitCode: 1, stdout: '', stderr: '' }
const line = (level: string, msg: string) => `${JSON.stringify({ level, msg, time: 'now' })}\n`

const errorOf = (log: string, { result = failed, program }: { result?: ToolResult; program?: string } = {}) =>
  runError({ what: 'x', result, log, program })

describe('runError', () => {
  it('returns the last error of the log', () => {
    const log = line('warning', 'w') + line('error', 'first') + line('error', 'last') + line('info', 'i')
    expect(errorOf(log)).toMatchObject({ code: 'INTERNAL', message: 'x: last' })
  })

  it('reads the entries of crun, which take several lines', () => {
    const entry = (level: string, msg: string) => JSON.stringify({ msg, level, time: 'now' }, undefined, 2)
    const log = `${entry('error', 'first')}\n${entry('error', 'last')}\n${entry('debug', 'd')}`
    expect(errorOf(log)).toMatchObject({ message: 'x: last' })
    expect(errorOf(log.slice(5)).message).toBe('x: last')
    expect(errorOf(`${log.slice(0, -10)}`).message).toBe('x: last')
  })

  it.each([
    ['stderr when the log has no error', { ...failed, stderr: 'oh no\n' }, line('info', 'i'), 'x: oh no'],
    ['the exit code when there is nothing else', { ...failed, exitCode: 137 }, '', 'x: exit code 137'],
    ['the complete lines of a truncated log', failed, `${line('error', 'e')}{"level":"err`, 'x: e'],
    [
      'nothing of lines that are not log entries',
      failed,
      'null\n[]\n"error"\n{"level":"error","msg":1}\n',
      'x: exit code 1',
    ],
  ])('returns %s', (_what, result, log, message) => {
    expect(errorOf(log, { result }).message).toBe(message)
  })

  it.each([
    ['runc, by name', 'exec failed: exec: "x": executable file not found in $PATH', 'was not found'],
    ['runc, by path', 'exec: "/bin/x y": stat /bin/x y: no such file or directory', 'was not found'],
    ['crun', 'executable file `x` not found in $PATH: No such file or directory', 'was not found'],
    ['runc, not executable', 'exec failed: exec: "/bin/x": permission denied', 'cannot be executed'],
    ['runc, below a file', 'exec: "/bin/x/y": stat /bin/x/y: not a directory', 'was not found'],
    ['runc, below a closed folder', 'exec: "/x/y": stat /x/y: permission denied', 'cannot be executed'],
    ['crun, below a file', 'open `it\'s "x" `y``: Not a directory', 'was not found'],
    ['runc, a folder', 'exec failed: exec: "/bin": is a directory', 'cannot be executed'],
    [
      'crun, not executable',
      'the path `/bin/x` exists but it is not executable: Operation not permitted',
      'cannot be executed',
    ],
    [
      'crun, a folder',
      'the path `/bin` is not a regular file: Operation not permitted',
      'cannot be executed',
    ],
  ])('names the fault of the program in the words that callers search for: %s', (_what, msg, words) => {
    // The name comes from the request: quotes in it would end it early in the text.
    const program = `it's "x" \`y\``
    expect(errorOf(line('error', msg), { program })).toMatchObject({
      message: `the file ${program} ${words}: x: ${msg}`,
      fault: 'caller',
    })
  })

  it.each([
    'chdir to cwd ("/root") set in config.json failed: permission denied',
    'chdir to cwd ("/no/such") set in config.json failed: no such file or directory',
    'chdir to `/no/such`: No such file or directory',
    'open `/other/file`: Not a directory',
    'unable to setup user: cannot setuid to unmapped uid 4294967295 in user namespace',
  ])('does not name the program for another fault: %s', (msg) => {
    expect(errorOf(line('error', msg), { program: 'sh' })).toMatchObject({
      message: `x: ${msg}`,
      fault: 'guest',
    })
  })
})

describe('namingHooks', () => {
  const hooks = Hooks.fromPartial({
    Prestart: [{ Path: '/hooks/a' }],
    CreateRuntime: [{ Path: '/hooks/b' }, { Path: '/hooks/c' }],
    Poststop: [{ Path: '/hooks/d' }],
  })

  it.each([
    ['error running hook #1: exit status 3\n', ' (hook #1: createRuntime /hooks/c)'],
    ['error running createRuntime hook #0: exit status 3', ' (hook #0: createRuntime /hooks/b)'],
    ['error running hook #0: exit status 3', ' (hook #0: prestart /hooks/a or createRuntime /hooks/b)'],
    ['error running hook #7: exit status 3', ''],
    ['no cgroup', ''],
  ])('adds to %j the hooks that it may mean', (message, added) => {
    const error = new AgentError('INTERNAL', `runc create: ${message}`)
    expect(namingHooks(error, hooks)).toMatchObject({
      code: 'INTERNAL',
      message: `runc create: ${added === '' ? message : message.trimEnd()}${added}`,
    })
    expect(namingHooks(error, undefined)).toBe(error)
  })
})
