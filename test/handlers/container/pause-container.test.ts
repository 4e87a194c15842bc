import { describe, expect, it } from 'vitest'
import { neverAborted } from '../../../src/base/abort.ts'
import { AgentError } from '../../../src/base/errors.ts'
import type { ToolResult } from '../../../src/os/process/tools.ts'
import type { FakeRuntime } from '../../support/handlers/fake-runtime.ts'
import {
  containerRequest,
  execRequest,
  machineWithContainer,
  machineWithSandbox,
} from '../../support/handlers/machine.ts'

const c1 = { containerId: 'c1' }
const FREEZER = '/sys/fs/cgroup/freezer/containers/c1/freezer.state'

const TIMED_OUT = new AgentError('INTERNAL', 'run /usr/sbin/runc: not finished', { errno: 'ETIMEDOUT' })

/** Makes the runtime wait in the middle of a call. `finish` ends the call with a result. */
function hold(runtime: FakeRuntime, verb: string) {
  const began = Promise.withResolvers<void>()
  const ended = Promise.withResolvers<Partial<ToolResult>>()
  runtime.refuse = (called) => {
    if (called !== verb) return undefined
    began.resolve()
    return ended.promise
  }
  return { began: began.promise, finish: ended.resolve }
}

describe('PauseContainer', () => {
  it('pauses a running container once', async () => {
    const { handlers, runtime } = await machineWithContainer()
    await handlers.pauseContainer(c1, neverAborted)
    await expect(handlers.pauseContainer(c1, neverAborted)).rejects.toMatchObject({
      code: 'INTERNAL',
      message: 'container c1 is paused, not created or running',
    })
    expect(runtime.calls).toEqual(['create', 'start', 'pause'])
  })

  it('pauses a created container, which can be started after it is resumed', async () => {
    const { handlers } = await machineWithSandbox()
    await handlers.createContainer(containerRequest('c1'), neverAborted)
    await handlers.pauseContainer(c1, neverAborted)
    await expect(handlers.startContainer(c1, neverAborted)).rejects.toThrow(
      'container c1 is paused, not created',
    )
    await handlers.resumeContainer(c1, neverAborted)
    await handlers.startContainer(c1, neverAborted)
  })

  it('waits for a creation in progress', async () => {
    const { handlers, runtime } = await machineWithSandbox()
    const creating = handlers.createContainer(containerRequest('c1'), neverAborted)
    await handlers.pauseContainer(c1, neverAborted)
    await creating
    expect(runtime.calls).toEqual(['create', 'pause'])
  })

  it('waits for a start in progress', async () => {
    const { handlers, runtime } = await machineWithSandbox()
    await handlers.createContainer(containerRequest('c1'), neverAborted)
    const start = hold(runtime, 'start')
    const starting = handlers.startContainer(c1, neverAborted)
    await start.began
    const pausing = handlers.pauseContainer(c1, neverAborted)
    start.finish({})
    await Promise.all([starting, pausing])
    expect(runtime.calls).toEqual(['create', 'start', 'pause'])
  })

  it('waits for execs in progress, which it would freeze half-way', async () => {
    const { handlers, runtime } = await machineWithContainer()
    const exec = hold(runtime, 'exec')
    const adding = handlers.execProcess(execRequest('c1', 'e1'), neverAborted)
    await exec.began
    const pausing = handlers.pauseContainer(c1, neverAborted)
    exec.finish({ exitCode: 1, stderr: 'too late' })
    await expect(adding).rejects.toThrow('too late')
    await pausing
    expect(runtime.calls).toEqual(['create', 'start', 'exec', 'pause'])
  })

  it('leaves the container running when the runtime fails', async () => {
    const { handlers, runtime } = await machineWithContainer()
    runtime.refuse = () => ({ exitCode: 1, stderr: 'no freezer' })
    await expect(handlers.pauseContainer(c1, neverAborted)).rejects.toMatchObject({
      code: 'INTERNAL',
      message: 'runc pause: no freezer',
    })
    runtime.refuse = () => undefined
    await handlers.execProcess(execRequest('c1', 'e1'), neverAborted)
  })

  it('leaves the container running and thawed when the runtime does not end', async () => {
    const { handlers, runtime, os } = await machineWithContainer()
    runtime.refuse = async () => {
      await os.files.write(FREEZER, 'FROZEN')
      throw TIMED_OUT
    }
    await expect(handlers.pauseContainer(c1, neverAborted)).rejects.toMatchObject({
      code: 'DEADLINE_EXCEEDED',
      message: 'runc pause: not finished after 60 s, and killed',
    })
    expect(os.tools.calls.at(-1)?.options.timeoutMs).toBe(60_000)
    expect(await os.files.readText(FREEZER)).toBe('THAWED')
    runtime.refuse = () => undefined
    await handlers.pauseContainer(c1, neverAborted)
  })

  it('leaves a container stopped that ends meanwhile', async () => {
    const { handlers, runtime } = await machineWithContainer()
    runtime.refuse = () => {
      runtime.end(runtime.last().pid, { code: 0 })
      return {}
    }
    await handlers.pauseContainer(c1, neverAborted)
    await expect(handlers.resumeContainer(c1, neverAborted)).rejects.toThrow(
      'container c1 is stopped, not paused',
    )
  })

  it('makes ExecProcess fail until the container is resumed', async () => {
    const { handlers } = await machineWithContainer()
    await handlers.pauseContainer(c1, neverAborted)
    await expect(handlers.execProcess(execRequest('c1', 'e1'), neverAborted)).rejects.toMatchObject({
      code: 'INTERNAL',
      message: 'container c1 is paused',
    })
    await handlers.resumeContainer(c1, neverAborted)
    await handlers.execProcess(execRequest('c1', 'e1'), neverAborted)
  })
})

describe('ResumeContainer', () => {
  it('thaws the container itself when the runtime does not end', async () => {
    const { handlers, runtime, os } = await machineWithContainer()
    await handlers.pauseContainer(c1, neverAborted)
    await os.files.write(FREEZER, 'FROZEN')
    runtime.refuse = () => Promise.reject(TIMED_OUT)
    await handlers.resumeContainer(c1, neverAborted)
    expect(await os.files.readText(FREEZER)).toBe('THAWED')
    runtime.refuse = () => undefined
    await handlers.execProcess(execRequest('c1', 'e1'), neverAborted)
  })

  it('refuses a container that is not paused', async () => {
    const { handlers, runtime } = await machineWithContainer()
    await expect(handlers.resumeContainer(c1, neverAborted)).rejects.toMatchObject({
      code: 'INTERNAL',
      message: 'container c1 is running, not paused',
    })
    expect(runtime.calls).toEqual(['create', 'start'])
  })
})

describe('PauseContainer and ResumeContainer of an unknown container', () => {
  it.each(['pauseContainer', 'resumeContainer'] as const)('%s answers INVALID_ARGUMENT', async (call) => {
    const { handlers } = await machineWithSandbox()
    await expect(handlers[call]({ containerId: 'c9' }, neverAborted)).rejects.toMatchObject({
      code: 'INVALID_ARGUMENT',
      message: 'invalid container id',
    })
  })
})
