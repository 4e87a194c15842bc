import { describe, expect, it } from 'vitest'
import { neverAborted } from '../../../src/base/abort.ts'
import { SIGKILL } from '../../../src/base/signals.ts'
import { WaitProcessResponse } from '../../../src/gen/agent.ts'
import { waitProcess } from '../../../src/handlers/process/wait-process.ts'
import { kernelError } from '../../../src/os/errors.ts'
import { NO_CALLER } from '../../../src/state/request.ts'
import {
  containerRequest,
  execRequest,
  machineWithContainer,
  machineWithSandbox,
} from '../../support/handlers/machine.ts'
import { isPending } from '../../support/pending.ts'

const init = { containerId: 'c1', execId: '' }
const exec = { containerId: 'c1', execId: 'e1' }

describe('WaitProcess', () => {
  it('returns the status to every caller, also to those that called before the start', async () => {
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

  it('keeps the status until it is delivered, then forgets the process', async () => {
    const { handlers, runtime, os } = await machineWithContainer()
    const before = [...os.exits.kept]
    await handlers.execProcess(execRequest('c1', 'e1'), neverAborted)
    const { pid } = runtime.last()
    runtime.end(pid, { signal: SIGKILL })
    expect((await handlers.waitProcess(exec, neverAborted)).status).toBe(137)
    const end = await handlers.waitProcess(exec, neverAborted)
    // vminit keeps the exit for the next agent, too.
    expect([...os.exits.kept]).toEqual([...before, pid])
    end.delivered()
    expect([...os.exits.kept]).toEqual(before)
    await expect(handlers.waitProcess(exec, neverAborted)).rejects.toMatchObject({
      code: 'NOT_FOUND',
      message: 'Process not found: invalid exec id',
    })
    await handlers.execProcess(execRequest('c1', 'e1'), neverAborted)
  })

  it('records the status for a repeated request, even when another waiter has received it', async () => {
    const { handlers, runtime, context } = await machineWithContainer()
    runtime.end(runtime.last().pid, { code: 7 })
    const other = await handlers.waitProcess(init, neverAborted)
    await waitProcess(context, init, { ...NO_CALLER, number: 5n })
    other.delivered()
    const answer = await context.requests.answerTo(5n)
    expect(WaitProcessResponse.decode(answer ?? Buffer.from('none')).status).toBe(7)
  })

  it('closes the streams of a process that it forgets, also when that cannot be recorded', async () => {
    const { handlers, runtime, os, state } = await machineWithContainer()
    const before = os.descriptors.stored
    await handlers.execProcess(execRequest('c1', 'e1'), neverAborted)
    runtime.end(runtime.last().pid, { code: 0 })
    const end = await handlers.waitProcess(exec, neverAborted)
    state.beforeChange = (path) => {
      throw kernelError('write', path, 'EIO')
    }
    expect(() => end.delivered()).toThrow('EIO')
    await expect.poll(() => os.descriptors.stored).toEqual(before)
    expect(os.exits.kept.size).toBe(1)
  })

  it('keeps the container when the first process is forgotten', async () => {
    const { handlers, runtime, os } = await machineWithContainer()
    runtime.end(runtime.last().pid, { code: 0 })
    const end = await handlers.waitProcess(init, neverAborted)
    end.delivered()
    expect(os.exits.kept.size).toBe(1)
    await expect(handlers.waitProcess(init, neverAborted)).rejects.toThrow(
      'Process not found: init process missing',
    )
    await handlers.removeContainer({ containerId: 'c1', timeout: 0 }, neverAborted)
  })

  it('records nothing about a removed container, or the next one of its name, on a late delivery', async () => {
    const { handlers, runtime, state } = await machineWithContainer()
    runtime.end(runtime.last().pid, { code: 0 })
    const ends = [
      await handlers.waitProcess(init, neverAborted),
      await handlers.waitProcess(init, neverAborted),
    ]
    await handlers.removeContainer({ containerId: 'c1', timeout: 0 }, neverAborted)
    ends[0]?.delivered()
    expect(state.list('containers')).toEqual([])
    await handlers.createContainer(containerRequest('c1'), neverAborted)
    const record = state.read('containers/c1/record')
    ends[1]?.delivered()
    expect(state.read('containers/c1/record')).toEqual(record)
  })

  it('rejects when its signal is aborted', async () => {
    const { handlers } = await machineWithContainer()
    const caller = new AbortController()
    const waiting = handlers.waitProcess(init, caller.signal)
    expect(await isPending(waiting)).toBe(true)
    caller.abort(new Error('gone'))
    await expect(waiting).rejects.toThrow('gone')
  })

  it('waits for the creation of the container', async () => {
    const { handlers, runtime } = await machineWithSandbox()
    const created = handlers.createContainer(containerRequest('c1'), neverAborted)
    const waiting = handlers.waitProcess(init, neverAborted)
    await created
    runtime.end(runtime.last().pid, { code: 3 })
    expect((await waiting).status).toBe(3)
  })
})
