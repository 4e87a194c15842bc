import { describe, expect, it } from 'vitest'
import { neverAborted } from '../../../src/base/abort.ts'
import { kernelError } from '../../../src/os/errors.ts'
import {
  containerRequest,
  execRequest,
  machineWithContainer,
  machineWithSandbox,
} from '../../support/handlers/machine.ts'

describe('ExecProcess', () => {
  it('inherits capabilities and limits, and never uses the exec id as a path', async () => {
    const made = await machineWithContainer()
    let input = ''
    made.runtime.refuse = (verb) => {
      const file = made.os.tools.calls.at(-1)?.argv.find((word) => word.endsWith('input.json'))
      if (verb !== 'exec' || file === undefined) return undefined
      return made.os.files.readText(file).then((text) => {
        input = text
        return { exitCode: 1, stderr: 'refused' }
      })
    }
    await expect(made.handlers.execProcess(execRequest('c1', '../../e 1'), neverAborted)).rejects.toThrow(
      'refused',
    )
    expect(JSON.parse(input)).toMatchObject({
      args: ['ls'],
      capabilities: { bounding: ['CAP_KILL'] },
      rlimits: [{ type: 'RLIMIT_NOFILE', hard: 1048576, soft: 1048576 }],
      oomScoreAdj: 0,
    })
    expect(made.os.tools.calls.flatMap(({ argv }) => argv).filter((word) => word.includes('e 1'))).toEqual([])
  })

  it.each([
    [
      'a request without a process',
      { ...execRequest('c1', 'e1'), process: undefined },
      'Unable to parse process',
    ],
    ['a container that does not exist', execRequest('c9', 'e1'), 'Invalid container id'],
    ['the id of the first process', execRequest('c1', 'c1'), "exec_id 'c1' already exists"],
  ])('refuses %s', async (_what, request, message) => {
    const { handlers } = await machineWithContainer()
    await expect(handlers.execProcess(request, neverAborted)).rejects.toMatchObject({
      code: 'INTERNAL',
      message: expect.stringContaining(message),
    })
  })

  it('refuses an exec id in use, also while its process is starting', async () => {
    const { handlers } = await machineWithContainer()
    const first = handlers.execProcess(execRequest('c1', 'e1'), neverAborted)
    await expect(handlers.execProcess(execRequest('c1', 'e1'), neverAborted)).rejects.toThrow(
      'already exists',
    )
    await first
  })

  it('fails in a container whose first process has ended', async () => {
    const { handlers, runtime } = await machineWithContainer()
    runtime.end(runtime.last().pid, { code: 0 })
    await new Promise(setImmediate)
    await expect(handlers.execProcess(execRequest('c1', 'e1'), neverAborted)).rejects.toMatchObject({
      code: 'NOT_FOUND',
    })
  })

  it('dates the start of a process that has already ended from the run of the OCI runtime', async () => {
    const { context, handlers, os, runtime } = await machineWithContainer()
    const init = runtime.last().pid
    os.clock.advance(200)
    await handlers.execProcess(execRequest('c1', 'e1'), neverAborted)
    os.clock.advance(30)
    for (const pid of [runtime.last().pid, init]) runtime.end(pid, { code: 0 })
    while (context.events.exits().length < 2) await context.events.next(neverAborted)
    const ran = context.events.exits().map(({ endedAtMs, startedAtMs }) => endedAtMs - startedAtMs)
    expect(ran).toEqual([30n, 230n])
  })

  it.each([
    ['the first process has moved to', '0::/containers/c1/init.scope\n', ['--cgroup', '/init.scope']],
    ['the container is in', '0::/containers/c1\n', []],
  ])('puts the process into the cgroup that %s', async (_which, text, expected) => {
    const made = await machineWithSandbox()
    await made.os.files.put('/sys/fs/cgroup/cgroup.controllers', '')
    await made.handlers.createContainer(containerRequest('c1'), neverAborted)
    await made.os.files.put('/proc/1001/cgroup', text)
    await made.handlers.execProcess(execRequest('c1', 'e1'), neverAborted)
    const argv = made.os.tools.calls.at(-1)?.argv ?? []
    const at = argv.indexOf('--cgroup')
    expect(at < 0 ? [] : argv.slice(at, at + 2)).toEqual(expected)
  })

  it('kills a runtime that hangs, 2 s after the call is cancelled', async () => {
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

  it('leaves no descriptor when the process cannot be recorded', async () => {
    const { handlers, os, state } = await machineWithContainer()
    const { openFds } = os.streams
    const { openWatches } = os.exits
    state.beforeChange = (path) => {
      throw kernelError('write', path, 'EIO')
    }
    await expect(handlers.execProcess(execRequest('c1', 'e1'), neverAborted)).rejects.toMatchObject({
      errno: 'EIO',
    })
    expect([os.streams.openFds, os.exits.openWatches]).toEqual([openFds, openWatches])
  })
})
