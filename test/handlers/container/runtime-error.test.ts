import { describe, expect, it } from 'vitest'
import { runtimeError } from '../../../src/handlers/container/runtime-error.ts'

const failed = { exitCode: 1, stdout: '', stderr: '' }
const line = (level: string, msg: string) => `${JSON.stringify({ level, msg, time: 'now' })}\n`

describe('runtimeError', () => {
  it('tells the last error of the log', () => {
    const log = line('warning', 'w') + line('error', 'first') + line('error', 'last') + line('info', 'i')
    const error = runtimeError('runc create', failed, log)
    expect(error).toMatchObject({ code: 'INTERNAL', message: 'runc create: last' })
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
    expect(runtimeError('x', result, log).message).toBe(message)
  })

  it.each([
    ['runc, by name', 'exec failed: exec: "nosuch": executable file not found in $PATH', 'nosuch'],
    ['runc, by path', 'exec: "/bin/x y": stat /bin/x y: no such file or directory', '/bin/x y'],
    ['crun', 'executable file `nosuch` not found in $PATH: No such file or directory', 'nosuch'],
  ])('says that the file was not found: %s', (_what, msg, file) => {
    expect(runtimeError('x', failed, line('error', msg)).message).toContain(`the file ${file} was not found`)
  })
})
