import { setImmediate } from 'node:timers/promises'
import type { IncomingCall, Method, MethodTable, Outcome, ServedMethod } from '../../../src/rpc/method.ts'

/** A call that a method under test received and that waits for the test's answer. */
export interface HeldCall {
  readonly payload: Uint8Array
  readonly call: IncomingCall
  answer(outcome: Outcome): void
}

/** A method whose calls the test answers by hand. */
export interface HeldMethod {
  readonly method: Method
  /** The next call, in the order of arrival. */
  next(): Promise<HeldCall>
  /** The number of calls that `next` has not returned yet. */
  readonly waiting: number
}

export function heldMethod(): HeldMethod {
  const calls: HeldCall[] = []
  const takers: ((call: HeldCall) => void)[] = []
  return {
    method: (payload, call) =>
      new Promise((answer) => {
        const held = { payload, call, answer }
        const taker = takers.shift()
        if (taker === undefined) calls.push(held)
        else taker(held)
      }),
    next: async () => calls.shift() ?? new Promise((take) => takers.push(take)),
    get waiting() {
      return calls.length
    },
  }
}

/** Answers each call with its request. */
export const echo: Method = async (payload) => ({ ok: true, payload })

/** The methods, which have nothing of the reserves of the limits unless they say so. */
export function tableOf(methods: Readonly<Record<string, Method | ServedMethod>>): MethodTable {
  return new Map(
    Object.entries(methods).map(([name, method]) => [
      name,
      typeof method === 'function' ? { serve: method, share: 'ordinary' } : method,
    ]),
  )
}

/** Resolves with the reason of the signal when it is aborted. */
export function aborted(signal: AbortSignal): Promise<unknown> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve(signal.reason)
    else signal.addEventListener('abort', () => resolve(signal.reason), { once: true })
  })
}

/** Waits until everything that is already queued in the event loop has arrived. */
export async function turns(count = 5): Promise<void> {
  for (let turn = 0; turn < count; turn += 1) await setImmediate()
}
