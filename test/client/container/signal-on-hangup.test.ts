import { describe, expect, it } from 'vitest'
import { deadlineExceeded } from '../../../src/base/abort.ts'
import { signalOnHangup } from '../../../src/client/container/signal-on-hangup.ts'
import { SignalOnHangupRequest } from '../../../src/gen/microvm/agent/v1/introspection.ts'
import type { TtrpcClient } from '../../../src/rpc/ttrpc/client.ts'

describe('signalOnHangup', () => {
  it('is undone by the signal 0, without waiting for an agent that hangs', async () => {
    const sent: number[] = []
    const call: TtrpcClient['call'] = async (_service, _method, payload, options) => {
      sent.push(SignalOnHangupRequest.decode(payload).signal)
      if (options?.timeoutMs === undefined) return await new Promise(() => {})
      throw deadlineExceeded()
    }
    const undo = await signalOnHangup({ call }, { containerId: 'c1', execId: 'e1' }, 1)
    await undo()
    expect(sent).toEqual([1, 0])
  })
})
