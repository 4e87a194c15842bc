import { describe, expect, it } from 'vitest'
import { cancelled, deadlineExceeded, neverAborted } from '../../../src/base/abort.ts'
import { AgentError } from '../../../src/base/errors.ts'
import { kernelError } from '../../../src/os/errors.ts'
import { recordingLog } from '../../support/fakes/recording-log.ts'
import { execRequest, machineWithContainer } from '../../support/handlers/machine.ts'
import { successorOf } from '../../support/handlers/successor.ts'
import { isPending } from '../../support/pending.ts'

const SIGHUP = 1
const REQUEST = { containerId: 'c1', execId: 'e1', signal: SIGHUP }

async function withWaitingCall(grace?: { readonly ms: number }) {
  const { log, lines } = recordingLog()
  const machine = await machineWithContainer({}, { config: { streamGraceMs: grace?.ms ?? 0 } })
  const { handlers, os, runtime, state } = machine
  const context = { ...machine.context, log }
  await handlers.execProcess(execRequest('c1', 'e1'), neverAborted)
  const caller = new AbortController()
  const { hangups } = context
  const wait = (signal: number, caller = neverAborted) =>
    hangups.wait(context, { ...REQUEST, signal }, { signal: caller, wasLost: () => grace !== undefined })
  const waiting = wait(SIGHUP, caller.signal)
  waiting.catch(() => {})
  const sent = () => os.system.signals.map(({ pid, signal }) => [pid, signal])
  const end = () => runtime.end(1002, { signal: SIGHUP })
  const status = () => handlers.waitProcess(REQUEST, neverAborted)
  return { machine, os, caller, context, end, hangups, lines, sent, state, status, wait, waiting }
}

/** The next agent, with the same clock. The timers of the one that has died are stopped. */
async function nextAgent({ machine, os }: Awaited<ReturnType<typeof withWaitingCall>>) {
  os.clock.stopAll()
  const { context, handlers } = await successorOf(machine)
  const wait = (signal: number, caller: AbortSignal) =>
    context.hangups.wait(context, { ...REQUEST, signal }, { signal: caller })
  return { wait, status: () => handlers.waitProcess(REQUEST, neverAborted) }
}

/** More turns of the loop than the call needs to find that its caller was lost. */
async function settled(): Promise<void> {
  for (let turn = 0; turn < 5; turn++) await new Promise(setImmediate)
}

describe('SignalOnHangup', () => {
  it('signals the process of a caller that hangs up, and forgets it at its end', async () => {
    const { caller, end, sent, status, waiting } = await withWaitingCall()
    caller.abort(cancelled())
    await expect(waiting).rejects.toMatchObject({ code: 'CANCELLED' })
    expect(sent()).toEqual([[1002, SIGHUP]])
    end()
    await expect
      .poll(() => status().catch(({ message }) => message))
      .toBe('Process not found: invalid exec id')
  })

  it('survives a failure to record the end of such a process', async () => {
    const { caller, end, lines, state, waiting } = await withWaitingCall()
    caller.abort(cancelled())
    await expect(waiting).rejects.toMatchObject({ code: 'CANCELLED' })
    state.beforeChange = (path) => {
      throw kernelError('remove', path, 'EIO')
    }
    end()
    await expect
      .poll(() => lines)
      .toMatchObject([{ message: 'process not forgotten', fields: { containerId: 'c1', execId: 'e1' } }])
  })

  it('signals and forgets the process of a lost caller although nothing can be recorded', async () => {
    const { caller, end, lines, os, sent, state, status, waiting } = await withWaitingCall({ ms: 5000 })
    state.beforeChange = (path) => {
      throw kernelError('write', path, 'ENOSPC')
    }
    caller.abort(cancelled())
    await settled()
    os.clock.advance(4999)
    expect([await isPending(waiting), sent()]).toEqual([true, []])
    os.clock.advance(1)
    await expect(waiting).rejects.toMatchObject({ code: 'CANCELLED' })
    expect(sent()).toEqual([[1002, SIGHUP]])
    const line = { message: 'hang-up not recorded', fields: { containerId: 'c1', execId: 'e1' } }
    expect(lines).toMatchObject([line, line])
    state.beforeChange = () => {}
    end()
    await expect
      .poll(() => status().catch(({ message }) => message))
      .toBe('Process not found: invalid exec id')
  })

  it('leaves the process alone at a deadline, because its caller still exists', async () => {
    const { caller, sent, waiting } = await withWaitingCall()
    caller.abort(deadlineExceeded())
    await expect(waiting).rejects.toMatchObject({ code: 'DEADLINE_EXCEEDED' })
    expect(sent()).toEqual([])
  })

  it('answers when the process ends, whose status stays for its caller', async () => {
    const { end, status, waiting } = await withWaitingCall()
    end()
    await waiting
    expect((await status()).status).toBe(128 + SIGHUP)
  })

  it('answers when a further call replaces it, and then uses the signal of that call', async () => {
    const { caller, sent, wait, waiting } = await withWaitingCall()
    const later = new AbortController()
    const second = wait(15, later.signal)
    await waiting
    caller.abort(cancelled())
    expect(await isPending(second)).toBe(true)
    later.abort(cancelled())
    await expect(second).rejects.toMatchObject({ code: 'CANCELLED' })
    expect(sent()).toEqual([[1002, 15]])
  })

  it('gives a caller that was lost with its device the grace to call again', async () => {
    const { os, caller, sent, wait, waiting } = await withWaitingCall({ ms: 5000 })
    caller.abort(cancelled())
    await settled()
    os.clock.advance(4999)
    expect([await isPending(waiting), sent()]).toEqual([true, []])
    const later = new AbortController()
    const second = wait(15, later.signal)
    await expect(waiting).rejects.toMatchObject({ code: 'CANCELLED' })
    os.clock.advance(10_000)
    expect([await isPending(second), sent()]).toEqual([true, []])
    later.abort(cancelled())
    await settled()
    os.clock.advance(5000)
    await expect(second).rejects.toMatchObject({ code: 'CANCELLED' })
    expect(sent()).toEqual([[1002, 15]])
  })

  it('signals nothing when the process ends within the grace, or the signal 0 comes', async () => {
    const one = await withWaitingCall({ ms: 5000 })
    one.caller.abort(cancelled())
    await settled()
    one.end()
    one.os.clock.advance(5000)
    await expect(one.waiting).rejects.toMatchObject({ code: 'CANCELLED' })
    const other = await withWaitingCall({ ms: 5000 })
    other.caller.abort(cancelled())
    await settled()
    await other.wait(0)
    await expect(other.waiting).rejects.toMatchObject({ code: 'CANCELLED' })
    expect([one.sent(), other.sent()]).toEqual([[], []])
  })

  it('is cancelled by the signal 0', async () => {
    const { caller, sent, wait, waiting } = await withWaitingCall()
    await wait(0)
    await waiting
    caller.abort(cancelled())
    expect(sent()).toEqual([])
  })

  it('signals the process at the end of the grace although the agent has died within it', async () => {
    const first = await withWaitingCall({ ms: 5000 })
    first.caller.abort(cancelled())
    await settled()
    first.os.clock.advance(2500)
    await nextAgent(first)
    first.os.clock.advance(2499)
    await settled()
    expect(first.sent()).toEqual([])
    first.os.clock.advance(1)
    await settled()
    expect(first.sent()).toEqual([[1002, SIGHUP]])
  })

  it('gives a lost caller that may have come back without an agent two seconds more', async () => {
    const first = await withWaitingCall({ ms: 5000 })
    first.caller.abort(cancelled())
    await settled()
    first.os.clock.advance(4900)
    const next = await nextAgent(first)
    first.os.clock.advance(1999)
    const later = new AbortController()
    const second = next.wait(15, later.signal)
    first.os.clock.advance(60_000)
    expect([await isPending(second), first.sent()]).toEqual([true, []])
    later.abort(cancelled())
    await expect(second).rejects.toMatchObject({ code: 'CANCELLED' })
    expect(first.sent()).toEqual([[1002, 15]])
  })

  it.each([
    [0, 10_000],
    [20_000, 20_000],
  ])(
    'signals the process of a caller that does not come back after a death, with a grace of %i ms',
    async (graceMs, dueMs) => {
      const first = await withWaitingCall({ ms: graceMs })
      await nextAgent(first)
      first.os.clock.advance(dueMs - 1)
      await settled()
      // Another death changes nothing.
      await nextAgent(first)
      expect(first.sent()).toEqual([])
      first.os.clock.advance(2000)
      await settled()
      expect(first.sent()).toEqual([[1002, SIGHUP]])
    },
  )

  it.each([
    [0, 10_000],
    [20_000, 20_000],
  ])(
    'waits for the caller of a detached stream from Attach on, with a grace of %i ms',
    async (graceMs, dueMs) => {
      const { caller, context, os, sent, waiting } = await withWaitingCall({ ms: graceMs })
      const { ports } = context
      caller.abort(new AgentError('UNAVAILABLE', 'Detach: the streams and their callers wait for Attach'))
      await ports.detach()
      await expect(waiting).rejects.toMatchObject({ code: 'UNAVAILABLE' })
      os.clock.advance(60_000)
      await settled()
      expect(sent()).toEqual([])
      await ports.attach([])
      await settled()
      os.clock.advance(dueMs - 1)
      await settled()
      // Detached again: a caller cannot come back.
      await ports.detach()
      os.clock.advance(60_000)
      await settled()
      expect(sent()).toEqual([])
      await ports.attach([])
      await settled()
      os.clock.advance(dueMs)
      await settled()
      expect(sent()).toEqual([[1002, SIGHUP]])
    },
  )

  it('signals nothing when the caller comes back after Attach, or the agent dies and it comes back then', async () => {
    const first = await withWaitingCall()
    first.caller.abort(new AgentError('UNAVAILABLE', 'Detach: the streams and their callers wait for Attach'))
    await first.context.ports.detach()
    await expect(first.waiting).rejects.toMatchObject({ code: 'UNAVAILABLE' })
    await first.context.ports.attach([])
    const again = new AbortController()
    const second = first.wait(SIGHUP, again.signal)
    first.os.clock.advance(60_000)
    expect([await isPending(second), first.sent()]).toEqual([true, []])
    again.abort(new AgentError('UNAVAILABLE', 'Detach: the streams and their callers wait for Attach'))
    await expect(second).rejects.toMatchObject({ code: 'UNAVAILABLE' })
    const next = await nextAgent(first)
    const third = next.wait(15, neverAborted)
    first.os.clock.advance(60_000)
    expect([await isPending(third), first.sent()]).toEqual([true, []])
  })

  it('forgets a process at its end that the previous agent has signalled', async () => {
    const first = await withWaitingCall()
    first.caller.abort(cancelled())
    await expect(first.waiting).rejects.toMatchObject({ code: 'CANCELLED' })
    const next = await nextAgent(first)
    first.end()
    await expect
      .poll(() => next.status().catch(({ message }) => message))
      .toBe('Process not found: invalid exec id')
    expect(first.sent()).toEqual([[1002, SIGHUP]])
  })

  it('signals nothing after a death when the signal 0 had come, or the call had ended', async () => {
    const cancelling = await withWaitingCall()
    await cancelling.wait(0)
    const late = await withWaitingCall()
    late.caller.abort(deadlineExceeded())
    await expect(late.waiting).rejects.toMatchObject({ code: 'DEADLINE_EXCEEDED' })
    for (const first of [cancelling, late]) {
      await nextAgent(first)
      first.os.clock.advance(60_000)
      await settled()
      expect(first.sent()).toEqual([])
    }
  })

  it.each([
    [{ containerId: 'c2' }, 'Invalid container id'],
    [{ execId: 'e2' }, 'Process not found: invalid exec id'],
    [{ execId: 'c1' }, 'exec_id: the first process, want one that was added'],
    [{ signal: 65 }, 'signal: unknown number 65, want at most 64'],
  ])('refuses %j', async (wrong, text) => {
    const { context, hangups } = await withWaitingCall()
    await expect(hangups.wait(context, { ...REQUEST, ...wrong }, { signal: neverAborted })).rejects.toThrow(
      text,
    )
  })
})
