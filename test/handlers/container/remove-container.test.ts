import { describe, expect, it } from 'vitest'
import { neverAborted } from '../../../src/base/abort.ts'
import { AgentError } from '../../../src/base/errors.ts'
import { SIGKILL } from '../../../src/base/signals.ts'
import { LinuxResources } from '../../../src/gen/oci.ts'
import { Phase, readContainerRecords } from '../../../src/handlers/container/container-record.ts'
import { createWithHooks, sandboxWithHooks } from '../../support/handlers/guest-hooks.ts'
import {
  containerRequest,
  execRequest,
  machineWithContainer,
  machineWithSandbox,
  remains,
} from '../../support/handlers/machine.ts'
import { recordsIn } from '../../support/handlers/successor.ts'
import { isPending } from '../../support/pending.ts'

const init = { containerId: 'c1', execId: '' }
const exec = { containerId: 'c1', execId: 'e1' }
const TO_BE_REMOVED = { code: 'INTERNAL', message: 'container c1 is to be removed' }

type Made = Awaited<ReturnType<typeof machineWithSandbox>>
type Calls = Made['handlers']
type FakeRuntime = Made['runtime']

describe('RemoveContainer', () => {
  it('kills all processes, ends pending calls, and leaves nothing behind', async () => {
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
    expect((await read).length).toBe(0)
    const after = await remains(made)
    // The sandbox keeps the pid namespace of its first container.
    const pin = '/run/sandbox-ns/pid'
    expect(after.mounts.filter((path) => path !== pin)).toEqual(before.mounts)
    expect(after).toMatchObject({ fds: 0, processes: 0, watches: 0, keptExits: 0, sleeps: 0, storages: [] })
    expect(after.files.filter((path) => path.startsWith('/run/kata-containers/'))).toEqual([])
  })

  it('deletes the container only after its processes are reaped, and never by force', async () => {
    const { handlers, runtime, os } = await machineWithContainer()
    os.system.onKill = () => {}
    const removed = handlers.removeContainer({ containerId: 'c1', timeout: 0 }, neverAborted)
    expect(await isPending(removed)).toBe(true)
    expect(runtime.calls).not.toContain('delete')
    runtime.end(1001, { signal: SIGKILL })
    await removed
    expect(os.tools.calls.at(-1)?.argv.slice(-2)).toEqual(['delete', 'c1'])
  })

  it('fails with ETIME after its timeout, keeps the container, and can be repeated', async () => {
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

  it('leaves a container that was not started to its start when it fails', async () => {
    const made = await machineWithSandbox()
    await made.handlers.createContainer(containerRequest('c1'), neverAborted)
    made.os.system.onKill = () => {}
    const removed = made.handlers.removeContainer({ containerId: 'c1', timeout: 2 }, neverAborted)
    await new Promise(setImmediate)
    made.os.clock.advance(2000)
    await expect(removed).rejects.toThrow('ETIME')
    const [record] = readContainerRecords(recordsIn(made.state))
    expect(record?.fields.phase).toBe(Phase.CREATED)
    await made.handlers.startContainer({ containerId: 'c1' }, neverAborted)
  })

  it('fails after 50 s without a timeout, names the processes left, keeps the container, and can be repeated', async () => {
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

  it('fails when the runtime does not end, and can be repeated', async () => {
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

  it('fails the second time, also when both calls run at once', async () => {
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

  it('ends a creation in progress, which counts as removed', async () => {
    const made = await machineWithSandbox()
    const { handlers, runtime } = made
    const before = await remains(made)
    runtime.refuse = (verb) => (verb === 'create' ? new Promise(() => {}) : undefined)
    const created = handlers.createContainer(containerRequest('c1'), neverAborted)
    created.catch(() => {})
    await handlers.removeContainer({ containerId: 'c1', timeout: 0 }, neverAborted)
    await expect(created).rejects.toMatchObject(TO_BE_REMOVED)
    const { mounts, processes, watches, storages } = before
    expect(await remains(made)).toMatchObject({ mounts, processes, watches, storages })
  })

  function hang(runtime: FakeRuntime, verb: string): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>()
    runtime.refuse = (called) => {
      if (called !== verb) return undefined
      resolve()
      return new Promise(() => {})
    }
    return promise
  }

  const Memory = { Limit: 1_048_576n }
  const limits = { containerId: 'c1', resources: LinuxResources.fromPartial({ Memory }) }

  it.each<[string, (calls: Calls) => Promise<unknown>]>([
    ['start', (calls) => calls.startContainer({ containerId: 'c1' }, neverAborted)],
    ['exec', (calls) => calls.execProcess(execRequest('c1', 'e1'), neverAborted)],
    ['pause', (calls) => calls.pauseContainer({ containerId: 'c1' }, neverAborted)],
    ['update', (calls) => calls.updateContainer(limits, neverAborted)],
  ])('ends a run of the runtime that would go on for ever: %s', async (verb, begin) => {
    const made = await machineWithSandbox()
    const { handlers, runtime } = made
    await handlers.createContainer(containerRequest('c1'), neverAborted)
    if (verb !== 'start') await handlers.startContainer({ containerId: 'c1' }, neverAborted)
    const hanging = hang(runtime, verb)
    const call = begin(handlers)
    call.catch(() => {})
    await hanging
    await handlers.removeContainer({ containerId: 'c1', timeout: 0 }, neverAborted)
    await expect(call).rejects.toMatchObject(TO_BE_REMOVED)
    expect(await remains(made)).toMatchObject({ processes: 0, watches: 0, storages: [] })
  })

  it('ends a pause that waits for an exec', async () => {
    const { handlers, runtime } = await machineWithContainer()
    const hanging = hang(runtime, 'exec')
    const calls = [handlers.execProcess(execRequest('c1', 'e1'), neverAborted)]
    await hanging
    calls.push(handlers.pauseContainer({ containerId: 'c1' }, neverAborted))
    const outcomes = Promise.allSettled(calls)
    await handlers.removeContainer({ containerId: 'c1', timeout: 0 }, neverAborted)
    for (const outcome of await outcomes) expect(outcome).toMatchObject({ reason: TO_BE_REMOVED })
  })

  it('frees the container id', async () => {
    const { handlers, context } = await machineWithContainer()
    await handlers.removeContainer({ containerId: 'c1', timeout: 0 }, neverAborted)
    await handlers.createContainer(containerRequest('c1'), neverAborted)
    expect(context.containers.tryGet('c1')?.state.name).toBe('created')
  })

  it('adds the timeouts of the poststop hooks to the timeout of the runtime', async () => {
    const hooks = [
      { Path: '/own/hook', Args: [], Env: [], Timeout: 3n },
      { Path: '/other/hook', Args: [], Env: [], Timeout: 0n },
    ]
    const { made, os } = await sandboxWithHooks({ path: '' })
    await createWithHooks(made, { Poststop: hooks })
    await made.handlers.removeContainer({ containerId: 'c1', timeout: 0 }, neverAborted)
    expect(os.tools.calls.at(-1)).toMatchObject({ options: { timeoutMs: 60_000 + 3000 + 10_000 } })
  })
})
