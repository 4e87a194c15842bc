import { describe, expect, it } from 'vitest'
import { neverAborted } from '../../../src/base/abort.ts'
import { AgentError } from '../../../src/base/errors.ts'
import { SIGKILL, SIGTERM } from '../../../src/base/signals.ts'
import {
  containerRequest,
  execRequest,
  type machine,
  machineWithContainer,
  machineWithSandbox,
  remains,
} from '../../support/handlers/machine.ts'

const init = { containerId: 'c1', execId: '' }
const exec = { containerId: 'c1', execId: 'e1' }

/** Whether a promise has settled by now. */
async function isPending(promise: Promise<unknown>): Promise<boolean> {
  const pending = Symbol()
  await new Promise(setImmediate)
  return (await Promise.race([promise.catch(() => {}), Promise.resolve(pending)])) === pending
}

describe('StartContainer', () => {
  it('starts once', async () => {
    const { handlers, runtime } = await machineWithContainer()
    expect(runtime.calls).toEqual(['create', 'start'])
    await expect(handlers.startContainer({ containerId: 'c1' }, neverAborted)).rejects.toMatchObject({
      code: 'INTERNAL',
      message: 'container c1 is running, not created',
    })
  })

  it('waits for the creation', async () => {
    const { handlers, runtime } = await machineWithSandbox()
    const created = handlers.createContainer(containerRequest('c1'), neverAborted)
    await handlers.startContainer({ containerId: 'c1' }, neverAborted)
    await created
    expect(runtime.calls).toEqual(['create', 'start'])
  })

  it('may be tried again after a failure', async () => {
    const { handlers, runtime } = await machineWithSandbox()
    await handlers.createContainer(containerRequest('c1'), neverAborted)
    runtime.refuse = () => ({ exitCode: 1, stderr: 'no' })
    await expect(handlers.startContainer({ containerId: 'c1' }, neverAborted)).rejects.toThrow(
      'runc start: no',
    )
    runtime.refuse = () => undefined
    await handlers.startContainer({ containerId: 'c1' }, neverAborted)
  })

  it('does not know a container that is not there', async () => {
    const { handlers } = await machineWithSandbox()
    await expect(handlers.startContainer({ containerId: 'c9' }, neverAborted)).rejects.toMatchObject({
      code: 'INTERNAL',
      message: 'Invalid container id',
    })
  })
})

describe('WaitProcess', () => {
  it('gives the status to all who wait, also before the start', async () => {
    const { handlers, runtime } = await machineWithSandbox()
    await handlers.createContainer(containerRequest('c1'), neverAborted)
    const waits = [
      handlers.waitProcess(init, neverAborted),
      handlers.waitProcess({ ...init, execId: 'c1' }, neverAborted),
    ]
    await handlers.startContainer({ containerId: 'c1' }, neverAborted)
    runtime.end(runtime.last().pid, { code: 7 })
    expect((await Promise.all(waits)).map(({ status }) => status)).toEqual([7, 7])
  })

  it('keeps the status until it was delivered, then forgets the process', async () => {
    const { handlers, runtime } = await machineWithContainer()
    await handlers.execProcess(execRequest('c1', 'e1'), neverAborted)
    runtime.end(runtime.last().pid, { signal: SIGKILL })
    expect((await handlers.waitProcess(exec, neverAborted)).status).toBe(137)
    const end = await handlers.waitProcess(exec, neverAborted)
    end.forget()
    await expect(handlers.waitProcess(exec, neverAborted)).rejects.toMatchObject({
      code: 'NOT_FOUND',
      message: 'Process not found: invalid exec id',
    })
    await handlers.execProcess(execRequest('c1', 'e1'), neverAborted)
  })

  it('keeps the container of a forgotten first process', async () => {
    const { handlers, runtime } = await machineWithContainer()
    runtime.end(runtime.last().pid, { code: 0 })
    const end = await handlers.waitProcess(init, neverAborted)
    end.forget()
    await expect(handlers.waitProcess(init, neverAborted)).rejects.toThrow(
      'Process not found: init process missing',
    )
    await handlers.removeContainer({ containerId: 'c1', timeout: 0 }, neverAborted)
  })

  it('lets a caller go that gave up', async () => {
    const { handlers } = await machineWithContainer()
    const caller = new AbortController()
    const waiting = handlers.waitProcess(init, caller.signal)
    expect(await isPending(waiting)).toBe(true)
    caller.abort(new Error('gone'))
    await expect(waiting).rejects.toThrow('gone')
  })

  it('waits for the creation of what it waits for', async () => {
    const { handlers, runtime } = await machineWithSandbox()
    const created = handlers.createContainer(containerRequest('c1'), neverAborted)
    const waiting = handlers.waitProcess(init, neverAborted)
    await created
    runtime.end(runtime.last().pid, { code: 3 })
    expect((await waiting).status).toBe(3)
  })
})

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

describe('SignalProcess', () => {
  const sent = (made: Awaited<ReturnType<typeof machine>>) =>
    made.os.system.signals.map(({ pid, signal }) => [pid, signal])

  /** Container c1 (pid 1001) with processes e1 and e2. */
  async function withThree() {
    const made = await machineWithContainer()
    for (const execId of ['e1', 'e2'])
      await made.handlers.execProcess(execRequest('c1', execId), neverAborted)
    return made
  }

  it.each([
    [
      'SIGKILL without an exec id: all',
      '',
      SIGKILL,
      [
        [1001, 9],
        [1002, 9],
        [1003, 9],
      ],
    ],
    ['another signal without an exec id: the first process', '', 1, [[1001, 1]]],
    ['the container’s id: the first process, SIGKILL too', 'c1', SIGKILL, [[1001, 9]]],
    ['an exec id: that process', 'e2', SIGTERM, [[1003, 15]]],
  ])('%s', async (_what, execId, signal, expected) => {
    const made = await withThree()
    await made.handlers.signalProcess({ containerId: 'c1', execId, signal }, neverAborted)
    expect(sent(made)).toEqual(expected)
  })

  it.each([
    ['SIGKILL in place of a SIGTERM that would be ignored', '0000000000000000', 9],
    ['SIGTERM when it is handled', '0000000000004000', 15],
  ])('sends the first process %s', async (_what, mask, expected) => {
    const made = await machineWithContainer()
    await made.os.files.put('/proc/1001/status', `SigBlk:\t0\nSigIgn:\t0\nSigCgt:\t${mask}\n`)
    await made.handlers.signalProcess({ ...init, signal: SIGTERM }, neverAborted)
    expect(sent(made)).toEqual([[1001, expected]])
  })

  it('leaves a pid alone whose process ended while it was looked at', async () => {
    const made = await machineWithContainer()
    const signalled = made.handlers.signalProcess({ ...init, signal: SIGTERM }, neverAborted)
    made.runtime.end(1001, { code: 0 })
    // Another process that got the number.
    made.os.system.processes.add(1001)
    await signalled
    expect(sent(made)).toEqual([])
  })

  it('kills a first process that waits to be started', async () => {
    const { handlers } = await machineWithSandbox()
    await handlers.createContainer(containerRequest('c1'), neverAborted)
    await handlers.signalProcess({ ...init, signal: SIGTERM }, neverAborted)
    expect((await handlers.waitProcess(init, neverAborted)).status).toBe(137)
    await expect(handlers.startContainer({ containerId: 'c1' }, neverAborted)).rejects.toThrow('is stopped')
  })

  it('kills a first process that was started and has not executed its program yet', async () => {
    const { os, handlers } = await machineWithSandbox()
    await os.files.makeDirectories('/proc/1001')
    await os.files.symlink('/memfd:runtime', '/proc/1001/exe')
    await os.files.put('/proc/1001/status', 'SigBlk:\t0\nSigIgn:\t0\nSigCgt:\t4000\n')
    await handlers.createContainer(containerRequest('c1'), neverAborted)
    await handlers.startContainer({ containerId: 'c1' }, neverAborted)
    await handlers.signalProcess({ ...init, signal: SIGTERM }, neverAborted)
    expect((await handlers.waitProcess(init, neverAborted)).status).toBe(137)
  })

  it('does not wait for a start that hangs', async () => {
    const { handlers, runtime } = await machineWithSandbox()
    await handlers.createContainer(containerRequest('c1'), neverAborted)
    const hanging = Promise.withResolvers<object>()
    runtime.refuse = () => hanging.promise
    const started = handlers.startContainer({ containerId: 'c1' }, neverAborted)
    await handlers.signalProcess({ ...init, signal: SIGKILL }, neverAborted)
    expect((await handlers.waitProcess(init, neverAborted)).status).toBe(137)
    hanging.resolve({ exitCode: 1, stderr: 'the container has gone' })
    await expect(started).rejects.toThrow('gone')
  })

  it('succeeds on a process that has ended, known or not yet known', async () => {
    const made = await withThree()
    made.os.system.processes.delete(1002)
    await made.handlers.signalProcess({ ...exec, signal: SIGTERM }, neverAborted)
    made.runtime.end(1003, { code: 0 })
    await made.handlers.waitProcess({ ...exec, execId: 'e2' }, neverAborted)
    await made.handlers.signalProcess({ ...exec, execId: 'e2', signal: SIGTERM }, neverAborted)
    expect(sent(made)).toEqual([])
  })

  it.each([
    ['an exec id that is not there', { ...exec, execId: 'e9', signal: 15 }, 'NOT_FOUND', 'invalid exec id'],
    [
      'a container that is not there',
      { ...init, containerId: 'c9', signal: 15 },
      'INVALID_ARGUMENT',
      'Invalid container id',
    ],
    [
      'the same for all processes',
      { ...init, containerId: 'c9', signal: 9 },
      'INTERNAL',
      'Invalid container id',
    ],
    ['a signal that is none', { ...init, signal: 65 }, 'INVALID_ARGUMENT', 'signal: unknown number 65'],
  ])('refuses %s', async (_what, request, code, message) => {
    const { handlers } = await machineWithContainer()
    await expect(handlers.signalProcess(request, neverAborted)).rejects.toMatchObject({
      code,
      message: expect.stringContaining(message),
    })
  })
})

describe('the streams of a process', () => {
  it('carry input, output and errors', async () => {
    const { os, handlers, runtime } = await machineWithContainer()
    const { stdin, stdout, stderr } = runtime.last()
    expect(await handlers.writeStdin({ ...init, data: Buffer.from('in') }, neverAborted)).toBe(2)
    expect(os.streams.tryRead(stdin, 9)?.toString()).toBe('in')
    os.streams.tryWrite(stdout, Buffer.from('out'))
    os.streams.tryWrite(stderr, Buffer.from('err'))
    const read = async (call: typeof handlers.readStdout) =>
      Buffer.from((await call({ ...init, len: 9 }, neverAborted)).data).toString()
    expect([await read(handlers.readStdout), await read(handlers.readStderr)]).toEqual(['out', 'err'])
  })

  it.each([
    [
      'WriteStdin without data',
      (handlers: Handlers) => handlers.writeStdin({ ...init, data: Buffer.alloc(0) }, neverAborted),
    ],
    ['CloseStdin', (handlers: Handlers) => handlers.closeStdin(init, neverAborted)],
  ])('%s ends the input, again and again', async (_what, close) => {
    const { os, handlers, runtime } = await machineWithContainer()
    await close(handlers)
    await close(handlers)
    expect(os.streams.tryRead(runtime.last().stdin, 9)).toHaveLength(0)
    await expect(
      handlers.writeStdin({ ...init, data: Buffer.from('x') }, neverAborted),
    ).rejects.toMatchObject({
      code: 'INTERNAL',
      message: 'Cannot get writer',
    })
  })

  it('on a terminal are one, and its size can be set', async () => {
    const { os, handlers, runtime } = await machineWithContainer({ Terminal: true })
    os.streams.tryWrite(runtime.last().stdout, Buffer.from('$ '))
    expect(Buffer.from((await handlers.readStderr({ ...init, len: 9 }, neverAborted)).data).toString()).toBe(
      '$ ',
    )
    await handlers.ttyWinResize({ ...init, row: 40, column: 100 }, neverAborted)
    expect([...os.streams.windowSizes.values()]).toEqual([{ rows: 40, columns: 100 }])
    await handlers.closeStdin(init, neverAborted)
    os.streams.tryWrite(runtime.last().stdout, Buffer.from('bye'))
    expect(Buffer.from((await handlers.readStdout({ ...init, len: 9 }, neverAborted)).data).toString()).toBe(
      'bye',
    )
  })

  it('may be read before the start', async () => {
    const { handlers, os, runtime } = await machineWithSandbox()
    await handlers.createContainer(containerRequest('c1'), neverAborted)
    const reading = handlers.readStdout({ ...init, len: 9 }, neverAborted)
    expect(await isPending(reading)).toBe(true)
    os.streams.tryWrite(runtime.last().stdout, Buffer.from('x'))
    expect(Buffer.from((await reading).data).toString()).toBe('x')
  })

  it.each([
    [
      'resizing what is no terminal',
      (h: Handlers) => h.ttyWinResize({ ...init, row: 1, column: 1 }, neverAborted),
      'UNAVAILABLE',
      'no tty',
    ],
    [
      'writing to no container',
      (h: Handlers) => h.writeStdin({ ...init, containerId: 'c9', data: Buffer.from('x') }, neverAborted),
      'INTERNAL',
      'Invalid container id',
    ],
    [
      'writing to no process',
      (h: Handlers) => h.writeStdin({ ...exec, data: Buffer.from('x') }, neverAborted),
      'INTERNAL',
      'Process not found: invalid exec id',
    ],
    [
      'reading from no container',
      (h: Handlers) => h.readStdout({ ...init, containerId: 'c9', len: 1 }, neverAborted),
      'INVALID_ARGUMENT',
      'Invalid container id',
    ],
    [
      'reading from no process',
      (h: Handlers) => h.readStderr({ ...exec, len: 1 }, neverAborted),
      'NOT_FOUND',
      'Process not found: invalid exec id',
    ],
    [
      'closing the input of no container',
      (h: Handlers) => h.closeStdin({ ...init, containerId: 'c9' }, neverAborted),
      'INVALID_ARGUMENT',
      'Invalid container id',
    ],
  ])('%s fails', async (_what, call, code, message) => {
    const { handlers } = await machineWithContainer()
    await expect(call(handlers)).rejects.toMatchObject({ code, message })
  })
})

type Handlers = Awaited<ReturnType<typeof machine>>['handlers']

describe('RemoveContainer', () => {
  it('kills everything, ends what is pending, and leaves nothing behind', async () => {
    const made = await machineWithSandbox()
    const before = await remains(made)
    const { handlers } = made
    const storages = [{ mountPoint: '/run/x' }]
    await handlers.createContainer(containerRequest('c1', {}, { storages }), neverAborted)
    await handlers.startContainer({ containerId: 'c1' }, neverAborted)
    await handlers.execProcess(execRequest('c1', 'e1'), neverAborted)
    const waits = [handlers.waitProcess(init, neverAborted), handlers.waitProcess(exec, neverAborted)]
    const read = handlers.readStdout({ ...exec, len: 9 }, neverAborted)
    await handlers.removeContainer({ containerId: 'c1', timeout: 0 }, neverAborted)
    expect((await Promise.all(waits)).map(({ status }) => status)).toEqual([137, 137])
    expect((await read).data).toHaveLength(0)
    const after = await remains(made)
    // The first container's pid namespace stays the sandbox's.
    const pin = '/run/sandbox-ns/pid'
    expect(after.mounts.filter((path) => path !== pin)).toEqual(before.mounts)
    expect(after).toMatchObject({ fds: 0, processes: 0, watches: 0, sleeps: 0, storages: [] })
    expect(after.files.filter((path) => path.startsWith('/run/kata-containers/'))).toEqual([])
  })

  it('deletes only after the processes were reaped, and never by force', async () => {
    const { handlers, runtime, os } = await machineWithContainer()
    os.system.onKill = () => {}
    const removed = handlers.removeContainer({ containerId: 'c1', timeout: 0 }, neverAborted)
    expect(await isPending(removed)).toBe(true)
    expect(runtime.calls).not.toContain('delete')
    runtime.end(1001, { signal: SIGKILL })
    await removed
    expect(os.tools.calls.at(-1)?.argv.slice(-2)).toEqual(['delete', 'c1'])
  })

  it('fails with ETIME after its timeout, keeps the container, and may be repeated', async () => {
    const { handlers, runtime, os } = await machineWithContainer()
    os.system.onKill = () => {}
    const removed = handlers.removeContainer({ containerId: 'c1', timeout: 2 }, neverAborted)
    await new Promise(setImmediate)
    os.clock.advance(2000)
    await expect(removed).rejects.toMatchObject({
      code: 'INTERNAL',
      message: expect.stringContaining('ETIME'),
    })
    expect(os.mounts.isMountPoint('/run/kata-containers/c1/rootfs')).toBe(true)
    runtime.end(1001, { signal: SIGKILL })
    await handlers.removeContainer({ containerId: 'c1', timeout: 2 }, neverAborted)
  })

  it('gives up after a while by itself, naming who does not die, keeps the container, and may be repeated', async () => {
    const { handlers, runtime, os } = await machineWithContainer()
    await handlers.execProcess(execRequest('c1', 'e1'), neverAborted)
    os.system.onKill = (pid, signal) => {
      if (pid === 1001) runtime.end(pid, { signal })
    }
    const removed = handlers.removeContainer({ containerId: 'c1', timeout: 0 }, neverAborted)
    await new Promise(setImmediate)
    os.clock.advance(49_999)
    expect(await isPending(removed)).toBe(true)
    os.clock.advance(1)
    await expect(removed).rejects.toMatchObject({
      code: 'DEADLINE_EXCEEDED',
      message: 'remove container c1: ETIME: processes (1002) not ended within 50 s',
    })
    expect(runtime.calls).not.toContain('delete')
    expect(os.clock.sleeping).toBe(0)
    runtime.end(1002, { signal: SIGKILL })
    await handlers.removeContainer({ containerId: 'c1', timeout: 0 }, neverAborted)
    await handlers.createContainer(containerRequest('c1'), neverAborted)
  })

  it('fails when the runtime does not end, and may be repeated', async () => {
    const { handlers, runtime } = await machineWithContainer()
    const reason = new AgentError('INTERNAL', 'run runc: not finished', { errno: 'ETIMEDOUT' })
    runtime.refuse = () => Promise.reject(reason)
    await expect(
      handlers.removeContainer({ containerId: 'c1', timeout: 0 }, neverAborted),
    ).rejects.toMatchObject({
      code: 'DEADLINE_EXCEEDED',
      message: 'runc delete: not finished after 60 s, and killed',
    })
    runtime.refuse = () => undefined
    await handlers.removeContainer({ containerId: 'c1', timeout: 0 }, neverAborted)
  })

  it('does not know the container the second time, also when both come at once', async () => {
    const { handlers } = await machineWithContainer()
    const request = { containerId: 'c1', timeout: 0 }
    const both = [
      handlers.removeContainer(request, neverAborted),
      handlers.removeContainer(request, neverAborted),
    ]
    const [first, second] = await Promise.allSettled(both)
    expect(first?.status).toBe('fulfilled')
    expect(second).toMatchObject({ reason: { code: 'INTERNAL', message: 'Invalid container id' } })
  })

  it('waits for a creation', async () => {
    const { handlers, runtime } = await machineWithSandbox()
    const created = handlers.createContainer(containerRequest('c1'), neverAborted)
    await handlers.removeContainer({ containerId: 'c1', timeout: 0 }, neverAborted)
    await created
    expect(runtime.processes).toEqual([])
  })

  it('waits for a process that is being added', async () => {
    const { handlers, runtime } = await machineWithContainer()
    const hanging = Promise.withResolvers<object>()
    runtime.refuse = (verb) => (verb === 'exec' ? hanging.promise : undefined)
    const added = handlers.execProcess(execRequest('c1', 'e1'), neverAborted)
    await new Promise(setImmediate)
    const removed = handlers.removeContainer({ containerId: 'c1', timeout: 0 }, neverAborted)
    expect(await isPending(removed)).toBe(true)
    hanging.resolve({ exitCode: 1, stderr: 'the container has gone' })
    await expect(added).rejects.toThrow('gone')
    await removed
  })

  it('frees the id', async () => {
    const { handlers } = await machineWithContainer()
    await handlers.removeContainer({ containerId: 'c1', timeout: 0 }, neverAborted)
    await handlers.createContainer(containerRequest('c1'), neverAborted)
  })
})

describe('DestroySandbox', () => {
  it('removes running containers, and those being created', async () => {
    const made = await machineWithContainer()
    const creating = made.handlers.createContainer(containerRequest('c2'), neverAborted)
    await made.handlers.destroySandbox({}, neverAborted)
    await creating
    expect(await remains(made)).toMatchObject({ processes: 0, fds: 0, mounts: ['/'] })
  })

  it('gives up on processes that do not die, stays, and may be repeated', async () => {
    const made = await machineWithContainer()
    made.os.system.onKill = () => {}
    const destroyed = made.handlers.destroySandbox({}, neverAborted)
    await new Promise(setImmediate)
    made.os.clock.advance(50_000)
    await expect(destroyed).rejects.toMatchObject({ code: 'DEADLINE_EXCEEDED' })
    made.runtime.end(1001, { signal: SIGKILL })
    await made.handlers.destroySandbox({}, neverAborted)
    expect(made.destroyed()).toBe(1)
  })

  it('fails with a container that cannot be removed, removes the others, and may be repeated', async () => {
    const made = await machineWithContainer()
    await made.handlers.createContainer(containerRequest('c2'), neverAborted)
    made.runtime.refuse = (verb) => {
      const id = made.os.tools.calls.at(-1)?.argv.at(-1)
      return verb === 'delete' && id === 'c1' ? { exitCode: 1, stderr: 'busy' } : undefined
    }
    await expect(made.handlers.destroySandbox({}, neverAborted)).rejects.toThrow('runc delete: busy')
    expect(made.destroyed()).toBe(0)
    expect(await made.os.files.list('/run/kata-containers')).toEqual(['c1'])
    made.runtime.refuse = () => undefined
    await made.handlers.destroySandbox({}, neverAborted)
    expect(made.destroyed()).toBe(1)
  })
})
