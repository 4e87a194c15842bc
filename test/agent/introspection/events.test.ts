import { expect, it } from 'vitest'
import { Events } from '../../../src/agent/introspection/events.ts'
import { tellNetwork } from '../../../src/agent/introspection/tell-network.ts'
import { eventLog } from '../../support/fakes/event-log.ts'
import { FakeClock } from '../../support/fakes/fake-clock.ts'

it('a stream with a slow reader drops events, and continues with a gap', async () => {
  const log = eventLog()
  const stream = new Events(log, new FakeClock()).stream(0n, new AbortController().signal)
  log.add({ clockSet: { stepMs: 0n } })
  expect((await stream.next()).value).toMatchObject({ lastSequence: 1n, gap: undefined })
  for (let n = 0; n < 5000; n++) log.add({ clockSet: { stepMs: 0n } })
  const { value } = await stream.next()
  expect(value).toMatchObject({
    gap: { firstSequence: 2n, lastSequence: 3977n },
    events: [{ sequence: 3978n }, ...Array.from({ length: 255 }, () => ({}))],
  })
})

it('an event of the network has at most 32 settings', () => {
  const log = eventLog()
  const setting = { kind: 'route', subject: '10.0.0.0/8', value: 'eth0', source: 'rpc' } as const
  tellNetwork(log)(Array.from({ length: 40 }, () => setting))
  const [event] = log.after(0n, 1).events
  expect(event?.networkChanged?.settings).toHaveLength(32)
  expect(event?.networkChanged?.omitted).toBe(8)
})
