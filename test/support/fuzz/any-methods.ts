import { setImmediate as turn } from 'node:timers/promises'
import type { Method, MethodTable } from '../../../src/rpc/method.ts'
import { tableOf } from '../rpc/fake-methods.ts'
import { REQUEST_TYPES } from './requests.ts'

/**
 * Some methods answer at once, some later, some fail, and some wait until the caller leaves. Health.Check answers at once.
 */
export function anyMethods(): MethodTable {
  const kinds = [echo, later, failing, waiting]
  const methods = [...REQUEST_TYPES.keys()].map(
    (name, index) => [name, kinds[index % kinds.length] ?? echo] as const,
  )
  return tableOf({
    ...Object.fromEntries(methods),
    'grpc.Health/Check': { serve: echo, share: 'reserved' },
  })
}

const echo: Method = async (payload) => ({ ok: true, payload })

const later: Method = async (payload) => {
  await turn()
  return { ok: true, payload }
}

const failing: Method = async () => ({ ok: false, code: 'NOT_FOUND', message: '\udc00'.repeat(20_000) })

const waiting: Method = (_payload, { hangup }) =>
  new Promise((resolve) => {
    const end = () => resolve({ ok: false, code: 'CANCELLED', message: 'left' })
    if (hangup.aborted) end()
    else hangup.addEventListener('abort', end, { once: true })
  })
