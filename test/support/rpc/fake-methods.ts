import { setImmediate } from 'node:timers/promises'
import type { IncomingCall, Method, MethodTable, Outcome, ServedMethod } from '../../../src/rpc/method.ts'

export interface HeldCall {
  readonly payload: Uint8Array
  readonly call: IncomingCall
  answer(outcome: Outcome): void
}

export interface HeldMethod {
  readonly method: Method
  next(): Promise<HeldCall>
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

export const echo: Method = async (payload) => ({ ok: true, payload })

/** Methods without reserved limits, unless they say so. */
export function tableOf(methods: Readonly<Record<string, Method | ServedMethod>>): MethodTable {
  return new Map(
    Object.entries(methods).map(([name, method]) => [
      name,
      typeof method === 'function' ? { serve: method, share: 'ordinary' } : method,
    ]),
  )
}

export function aborted(signal: AbortSignal): Promise<unknown> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve(signal.reason)
    else signal.addEventListener('abort', () => resolve(signal.reason), { once: true })
  })
}

/** Waits for the events that are already queued in the event loop. */
export async function turns(count = 5): Promise<void> {
  for (let turn = 0; turn < count; turn += 1) await setImmediate()
}
