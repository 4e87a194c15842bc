import { describe, expect, it } from 'vitest'
import { BootGate } from '../../../src/agent/boot/gate.ts'
import { deadlineExceeded, neverAborted } from '../../../src/base/abort.ts'

describe('BootGate', () => {
  it('lets waiting calls continue when it opens', async () => {
    const gate = new BootGate()
    const passed = gate.wait(neverAborted)
    gate.open()
    await expect(passed).resolves.toBeUndefined()
  })

  it('lets later calls pass at once', async () => {
    const gate = new BootGate()
    gate.open()
    await expect(gate.wait(neverAborted)).resolves.toBeUndefined()
  })

  it('stops waiting at the deadline of the call', async () => {
    const call = new AbortController()
    const passed = new BootGate().wait(call.signal)
    call.abort(deadlineExceeded())
    await expect(passed).rejects.toMatchObject({ code: 'DEADLINE_EXCEEDED' })
  })

  it('answers every call with the reason of a failed boot', async () => {
    const gate = new BootGate()
    const early = gate.wait(neverAborted)
    gate.fail('mount /run: EBUSY')
    for (const wait of [early, gate.wait(neverAborted)]) {
      await expect(wait).rejects.toMatchObject({
        code: 'INTERNAL',
        message: 'the agent did not boot: mount /run: EBUSY',
      })
    }
  })

  it('keeps the first outcome', async () => {
    const gate = new BootGate()
    gate.open()
    gate.fail('too late')
    await expect(gate.wait(neverAborted)).resolves.toBeUndefined()
  })
})
