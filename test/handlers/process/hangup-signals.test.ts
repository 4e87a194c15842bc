import { describe, expect, it } from 'vitest'
import { cancelled, deadlineExceeded, neverAborted } from '../../../src/base/abort.ts'
import { HangupSignals } from '../../../src/handlers/process/hangup-signals.ts'
import { kernelError } from '../../../src/os/errors.ts'
import { recordingLog } from '../../support/fakes/recording-log.ts'
import { execRequest, machineWithContainer } from '../../support/handlers/machine.ts'
import { isPending } from '../../support/pending.ts'

const SIGHUP = 1
const REQUEST = { containerId: 'c1', execId: 'e1', signal: SIGHUP }

async function withWaitingCall(grace?: { readonly ms: number }) {
  const { context: made, handlers, os, runtime, state } = await machineWithContainer()
  const { log, lines } = recordingLog()
  const config = { ...made.config, streamGraceMs: grace?.ms ?? 0 }
  const context = { ...made, log, config }
  await handlers.execProcess(execRequest('c1', 'e1'), neverAborted)
  const hangups = new HangupSignals()
  const caller = new AbortController()
  const wait = (signal: number, caller = neverAborted) =>
    hangups.wait(context, { ...REQUEST, signal }, { signal: caller, wasLost: () => grace !== undefined })
  const waiting = wait(SIGHUP, caller.signal)
  waiting.catch(() => {})
  const sent = () => os.system.signals.map(({ pid, signal }) => [pid, signal])
  const end = () => runtime.end(1002, { signal: SIGHUP })
  const status = () => handlers.waitProcess(REQUEST, neverAborted)
  return { os, caller, context, end, hangups, lines, sent, state, status, wait, waiting }
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
