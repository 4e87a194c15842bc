import { describe, expect, it } from 'vitest'
import { neverAborted } from '../../../src/base/abort.ts'
import { FakeOs } from '../../support/fakes/fake-os.ts'
import {
  createWithHooks,
  HOOKS_FOLDER,
  putHook,
  ranHooks,
  sandboxWithHooks,
} from '../../support/handlers/guest-hooks.ts'
import { containerRequest, machineWithContainer, machineWithSandbox } from '../../support/handlers/machine.ts'

describe('StartContainer', () => {
  it('starts a container only once', async () => {
    const { handlers, runtime } = await machineWithContainer()
    expect(runtime.calls).toEqual(['create', 'start'])
    await expect(handlers.startContainer({ containerId: 'c1' }, neverAborted)).rejects.toMatchObject({
      code: 'INTERNAL',
      message: 'container c1 is running, not created',
    })
  })

  it('waits for the creation of the container', async () => {
    const { handlers, runtime } = await machineWithSandbox()
    const created = handlers.createContainer(containerRequest('c1'), neverAborted)
    await handlers.startContainer({ containerId: 'c1' }, neverAborted)
    await created
    expect(runtime.calls).toEqual(['create', 'start'])
  })

  it('can be repeated after a failure', async () => {
    const { handlers, runtime } = await machineWithSandbox()
    await handlers.createContainer(containerRequest('c1'), neverAborted)
    runtime.refuse = () => ({ exitCode: 1, stderr: 'no' })
    await expect(handlers.startContainer({ containerId: 'c1' }, neverAborted)).rejects.toThrow(
      'runc start: no',
    )
    runtime.refuse = () => undefined
    await handlers.startContainer({ containerId: 'c1' }, neverAborted)
  })

  it('is reported before the end of a program that ends while the OCI runtime still runs', async () => {
    const { context, handlers, runtime } = await machineWithSandbox()
    await handlers.createContainer(containerRequest('c1'), neverAborted)
    runtime.refuse = async () => {
      runtime.end(runtime.last().pid, { code: 0 })
      await new Promise(setImmediate)
      return undefined
    }
    await handlers.startContainer({ containerId: 'c1' }, neverAborted)
    while (context.events.exits().length === 0) await context.events.next(neverAborted)
    expect(context.events.after(0n, 9).events).toMatchObject([
      { processStarted: { containerId: 'c1' } },
      { processExited: { containerId: 'c1' } },
    ])
  })

  it('refuses a container that does not exist', async () => {
    const { handlers } = await machineWithSandbox()
    await expect(handlers.startContainer({ containerId: 'c9' }, neverAborted)).rejects.toMatchObject({
      code: 'INTERNAL',
      message: 'Invalid container id',
    })
  })
})

describe('poststart hooks', () => {
  const own = [
    { Path: '/own/hook', Args: ['name', 'x'], Env: ['A=b=c', 'D'], Timeout: 3n },
    { Path: '/other/hook', Args: [], Env: [], Timeout: 0n },
  ]

  it('run in the agent after the process has started, with the container’s state on stdin', async () => {
    const os = new FakeOs()
    await putHook(os, 'poststart/guest')
    const { made, lines } = await sandboxWithHooks({ os })
    const { hooks } = await createWithHooks(made, { Poststart: own })
    expect(hooks).toBeUndefined()
    expect(ranHooks(os)).toEqual([])
    await made.handlers.startContainer({ containerId: 'c1' }, neverAborted)
    const calls = ranHooks(os)
    expect(calls.map(({ argv }) => argv)).toEqual([
      ['/own/hook', 'x'],
      ['/other/hook'],
      [`${HOOKS_FOLDER}/poststart/guest`, 'poststart'],
    ])
    expect(calls.map(({ options }) => options.name)).toEqual(['name', '/other/hook', 'guest'])
    expect(calls.map(({ options }) => options.timeoutMs)).toEqual([3000, 10_000, 10_000])
    expect(calls[0]?.options).toMatchObject({
      env: { A: 'b=c', D: '' },
      cwd: '/run/kata-containers/c1',
    })
    expect(JSON.parse(String(calls[0]?.options.stdin))).toEqual({
      ociVersion: '1.0.2',
      id: 'c1',
      status: 'running',
      pid: made.runtime.last().pid,
      bundle: '/run/kata-containers/c1',
      annotations: {},
    })
    expect(lines).toEqual([])
  })

  it('that fail are logged; the start succeeds and the next hook runs', async () => {
    const answer = (path: string) => (path === '/own/hook' ? { exitCode: 7, stderr: 'no luck\n' } : {})
    const { made, os, lines } = await sandboxWithHooks({ path: '', answer })
    await createWithHooks(made, { Poststart: own })
    await made.handlers.startContainer({ containerId: 'c1' }, neverAborted)
    expect(ranHooks(os)).toHaveLength(2)
    expect(lines).toMatchObject([{ containerId: 'c1', hook: '/own/hook', error: 'exit status 7: no luck' }])
  })

  it('are killed, and later ones skipped, when the container is removed meanwhile', async () => {
    const { made, os, lines } = await sandboxWithHooks({ path: '' })
    const began = Promise.withResolvers<void>()
    os.tools.script(([program], { signal }) => {
      if (program !== '/own/hook') return undefined
      began.resolve()
      return new Promise((_, reject) => signal?.addEventListener('abort', () => reject(signal.reason)))
    })
    await createWithHooks(made, { Poststart: own })
    const starting = made.handlers.startContainer({ containerId: 'c1' }, neverAborted)
    await began.promise
    await made.handlers.removeContainer({ containerId: 'c1', timeout: 0 }, neverAborted)
    await starting
    expect(ranHooks(os).map(({ argv }) => argv[0])).toEqual(['/own/hook'])
    expect(lines).toMatchObject([{ hook: '/own/hook', error: 'container c1 is to be removed' }])
  })

  it('do not run when the start fails', async () => {
    const { made, os } = await sandboxWithHooks({ path: '' })
    await createWithHooks(made, { Poststart: own })
    made.runtime.refuse = (verb) => (verb === 'start' ? { exitCode: 1 } : undefined)
    await expect(made.handlers.startContainer({ containerId: 'c1' }, neverAborted)).rejects.toThrow('start')
    expect(ranHooks(os)).toEqual([])
  })
})
