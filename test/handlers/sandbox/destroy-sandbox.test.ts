import { describe, expect, it } from 'vitest'
import { neverAborted } from '../../../src/base/abort.ts'
import { SIGKILL } from '../../../src/base/signals.ts'
import { kernelError } from '../../../src/os/errors.ts'
import {
  CONTAINERS_CGROUP,
  containerRequest,
  machine,
  machineWithContainer,
  machineWithSandbox,
  remains,
  sandboxRequest,
} from '../../support/handlers/machine.ts'

describe('DestroySandbox', () => {
  it('removes everything, then calls onDestroyed', async () => {
    const made = await machine()
    const before = await remains(made)
    const request = { dns: ['nameserver 1.1.1.1'], storages: [{ mountPoint: '/run/x' }] }
    await made.handlers.createSandbox(sandboxRequest(request), neverAborted)
    expect(made.destroyed()).toBe(0)
    await made.handlers.destroySandbox({}, neverAborted)
    expect(await remains(made)).toEqual({ ...before, state: ['sandbox'] })
    expect(made.destroyed()).toBe(1)
  })

  it('removes the cgroup of all containers, with what they left there', async () => {
    const made = await machineWithContainer()
    expect(await made.os.files.stat(CONTAINERS_CGROUP)).toBeDefined()
    await made.handlers.destroySandbox({}, neverAborted)
    expect(await made.os.files.stat(CONTAINERS_CGROUP)).toBeUndefined()
  })

  it('clears kept storages after those in use are released, while their folder still exists', async () => {
    const made = await machine()
    await made.handlers.createSandbox(sandboxRequest({ storages: [{ mountPoint: '/run/x' }] }), neverAborted)
    await made.os.files.put('/run/kata-containers/sandbox/shm/file', '')
    const atClear: unknown[] = []
    made.storage.clear = async () => {
      atClear.push([...made.storages], await made.os.files.list('/run/kata-containers'))
    }
    await made.handlers.destroySandbox({}, neverAborted)
    expect(atClear).toEqual([[], ['sandbox']])
  })

  it('fails the second time', async () => {
    const { handlers, destroyed } = await machineWithSandbox()
    await handlers.destroySandbox({}, neverAborted)
    await expect(handlers.destroySandbox({}, neverAborted)).rejects.toMatchObject({
      code: 'INTERNAL',
      message: 'failed to get sandbox sender channel',
    })
    expect(destroyed()).toBe(1)
  })

  it('fails the second time when both run at once, after the first is done', async () => {
    const { handlers, destroyed } = await machineWithContainer()
    const calls = [handlers.destroySandbox({}, neverAborted), handlers.destroySandbox({}, neverAborted)]
    const [first, second] = await Promise.allSettled(calls)
    expect(first?.status).toBe('fulfilled')
    expect(second).toMatchObject({ reason: { message: 'failed to get sandbox sender channel' } })
    expect(destroyed()).toBe(1)
  })

  it('fails when it cannot be recorded, and can be repeated', async () => {
    const { handlers, state, destroyed } = await machineWithSandbox()
    let writes = 0
    state.beforeChange = (path) => {
      writes += 1
      if (path === 'sandbox' && writes > 1) throw kernelError('write', path, 'EIO')
    }
    await expect(handlers.destroySandbox({}, neverAborted)).rejects.toMatchObject({ errno: 'EIO' })
    state.beforeChange = () => {}
    await handlers.destroySandbox({}, neverAborted)
    expect(destroyed()).toBe(1)
  })

  it('succeeds without a sandbox, because the host wants the guest to end', async () => {
    const { handlers, destroyed } = await machine()
    await handlers.destroySandbox({}, neverAborted)
    expect(destroyed()).toBe(1)
  })

  it('ends a creation in progress', async () => {
    const { handlers, destroyed } = await machine()
    const created = handlers.createSandbox(sandboxRequest(), neverAborted)
    created.catch(() => {})
    await handlers.destroySandbox({}, neverAborted)
    const failure = { code: 'INTERNAL', message: 'sandbox: is to be destroyed' }
    await expect(created).rejects.toMatchObject(failure)
    expect(destroyed()).toBe(1)
  })

  it('removes running containers and those being created', async () => {
    const made = await machineWithContainer()
    const creating = made.handlers.createContainer(containerRequest('c2'), neverAborted)
    creating.catch(() => {})
    await made.handlers.destroySandbox({}, neverAborted)
    await expect(creating).rejects.toThrow('container c2 is to be removed')
    expect(await remains(made)).toMatchObject({ processes: 0, fds: 0, mounts: ['/'] })
  })

  it('fails when processes do not end, keeps the sandbox, and can be repeated', async () => {
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

  it('fails when a storage cannot be unmounted, leaves no sandbox, and can be repeated', async () => {
    const made = await machine()
    const request = sandboxRequest({ storages: [{ mountPoint: '/run/x' }] })
    await made.handlers.createSandbox(request, neverAborted)
    const { release } = made.storage
    made.storage.release = async (attached) => {
      await release(attached)
      throw kernelError('unmount', '/run/x', 'ETIMEDOUT')
    }
    const failed = made.handlers.destroySandbox({}, neverAborted)
    await expect(failed).rejects.toThrow('unmount /run/x: ETIMEDOUT')
    expect(made.destroyed()).toBe(0)
    expect(made.context.sandboxState.view).toEqual({ name: 'none', sandbox: undefined })
    await made.handlers.destroySandbox({}, neverAborted)
    expect(made.destroyed()).toBe(1)
  })

  it('fails when a container cannot be removed, removes the others, and can be repeated', async () => {
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
