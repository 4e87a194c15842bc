import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { cannotBoot, type TestGuest } from '../support/vm/boot-guest.ts'
import { bootPod, type GuestPod } from '../support/vm/guest-pod.ts'
import { dialFromContainer } from '../support/vm/guest-program/dial.ts'

describe.skipIf(cannotBoot() !== undefined)('an agent with agent.vsock_allow_loopback', () => {
  let guest: TestGuest
  let pod: GuestPod
  beforeAll(async () => {
    ;({ guest, pod } = await bootPod({ append: ['agent.vsock_allow_loopback'] }))
  })
  afterAll(() => guest?.stop())

  it('answers processes of its own guest', async (context) => {
    context.skip(guest.guest.link.backend.kind === 'user-network', 'there is no vsock here')
    const dialling = await dialFromContainer(pod)
    const answer = await dialling.read('stdout')
    // A frame of type 2, a response, on stream 1.
    expect(answer.subarray(4, 9)).toEqual(Buffer.from([0, 0, 0, 1, 2]))
    expect((await dialling.read('stderr')).toString()).toBe('connected\n')
    await pod.remove('dial')
  })
})
