import { describe, expect, it } from 'vitest'
import { neverAborted } from '../../../src/base/abort.ts'
import {
  containerRequest,
  execRequest,
  machineWithContainer,
  machineWithSandbox,
} from '../../support/handlers/machine.ts'

describe('ExecProcess', () => {
  it('inherits the capabilities and never uses the exec id as a path', async () => {
    const made = await machineWithContainer()
    let given = ''
    made.runtime.refuse = (verb) => {
      const file = made.os.tools.calls.at(-1)?.argv.find((word) => word.endsWith('input.json'))
      if (verb !== 'exec' || file === undefined) return undefined
      return made.os.files.readText(file).then((text) => {
        given = text
        return { exitCode: 1, stderr: 'refused' }
      })
    }
    await expect(made.handlers.execProcess(execRequest('c1', '../../e 1'), neverAborted)).rejects.toThrow(
      'refused',
    )
    expect(JSON.parse(given)).toMatchObject({
      args: ['ls'],
      capabilities: { bounding: ['CAP_KILL'] },
      rlimits: [{ type: 'RLIMIT_NOFILE', hard: 524288, soft: 1024 }],
      oomScoreAdj: 0,
    })
    expect(made.os.tools.calls.flatMap(({ argv }) => argv).filter((word) => word.includes('e 1'))).toEqual([])
  })

  it.each([
    ['no process', { ...execRequest('c1', 'e1'), process: undefined }, 'Unable to parse process'],
    ['a container that is not there', execRequest('c9', 'e1'), 'Invalid container id'],
    ['the first process’s id', execRequest('c1', 'c1'), "exec_id 'c1' already exists"],
  ])('refuses %s', async (_what, request, message) => {
    const { handlers } = await machineWithContainer()
    await expect(handlers.execProcess(request, neverAborted)).rejects.toMatchObject({
      code: 'INTERNAL',
      message: expect.stringContaining(message),
    })
  })

  it('refuses an id in use, also while its process is being started', async () => {
    const { handlers } = await machineWithContainer()
    const first = handlers.execProcess(execRequest('c1', 'e1'), neverAborted)
    await expect(handlers.execProcess(execRequest('c1', 'e1'), neverAborted)).rejects.toThrow(
      'already exists',
    )
    await first
  })

  it('fails at once in a container whose first process has ended', async () => {
    const { handlers, runtime } = await machineWithContainer()
    runtime.end(runtime.last().pid, { code: 0 })
    await new Promise(setImmediate)
    await expect(handlers.execProcess(execRequest('c1', 'e1'), neverAborted)).rejects.toMatchObject({
      code: 'NOT_FOUND',
    })
  })

  it.each([
    ['the first process has moved', '0::/c1/init.scope\n', ['--cgroup', '/init.scope']],
    ['the container is', '0::/c1\n', []],
  ])('adds to the cgroup where %s', async (_where, text, expected) => {
    const made = await machineWithSandbox()
    await made.os.files.put('/sys/fs/cgroup/cgroup.controllers', '')
    await made.handlers.createContainer(containerRequest('c1'), neverAborted)
    await made.os.files.put('/proc/1001/cgroup', text)
    await made.handlers.execProcess(execRequest('c1', 'e1'), neverAborted)
    const argv = made.os.tools.calls.at(-1)?.argv ?? []
    const at = argv.indexOf('--cgroup')
    expect(at < 0 ? [] : argv.slice(at, at + 2)).toEqual(expected)
  })

  it('kills a runtime that hangs, two seconds after its caller gave up', async () => {
    const { os, handlers, runtime } = await machineWithContainer()
    let runtimeSignal: AbortSignal | undefined
    runtime.refuse = () => {
      runtimeSignal = os.tools.calls.at(-1)?.options.signal
      return new Promise((_resolve, reject) => {
        runtimeSignal?.addEventListener('abort', () => reject(runtimeSignal?.reason))
      })
    }
    const caller = new AbortController()
    const started = handlers.execProcess(execRequest('c1', 'e1'), caller.signal)
    await new Promise(setImmediate)
    caller.abort(new Error('gone'))
    os.clock.advance(1999)
    expect(runtimeSignal?.aborted).toBe(false)
    os.clock.advance(1)
    await expect(started).rejects.toThrow('gone')
  })
})
