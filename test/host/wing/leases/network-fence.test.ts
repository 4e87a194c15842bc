import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import {
  FENCE_LATE_MS,
  fencedTap,
  makeFence,
  openFences,
  removeFence,
} from '../../../../src/host/instance/leases/network-fence.ts'
import { makeNetworkNamespace, type NetworkNamespace } from '../../../support/host/network-namespace.ts'
import { realNative } from '../../../support/os/real-native.ts'
import { type FrameSender, sendFrames } from './frame-sender.ts'

const MS = 1_000_000n
const clock = await realNative()
const tap = fencedTap('/state/instances/n-1', 'net', 'tap0')

describe('the fence of a tap', () => {
  let namespace: NetworkNamespace
  let sender: FrameSender
  /** What nft may take longer, once each. */
  const delaysMs: number[] = []
  const filters = {
    run: async (commands: string) => {
      await sleep(delaysMs.shift() ?? 0)
      namespace.run('nft', '--', commands)
    },
  }
  const context = { filters, clock }
  const open = (untilNs: bigint) => openFences(context, [tap], untilNs)
  const inMs = (ms: number) => clock.boottimeNs() + BigInt(ms) * MS
  const passes = async () => {
    const before = sender.passed()
    await expect.poll(() => sender.passed()).toBeGreaterThan(before + 2)
  }
  /** Some frames have been sent meanwhile. */
  const stands = async () => {
    await sleep(100)
    const before = sender.passed()
    await sleep(300)
    expect(sender.passed()).toBe(before)
  }

  beforeAll(async () => {
    namespace = await makeNetworkNamespace(
      'br0 up type bridge mcast_snooping 0',
      'out0 up master br0 type veth peer name seen0',
    )
    namespace.ip('link set seen0 up')
  })
  afterAll(() => namespace.close())
  beforeEach(async () => {
    const { boottimeNs: now } = clock
    sender = await sendFrames(namespace, { tap: 'tap0', seen: 'seen0', bridge: 'br0', now })
    await passes()
    await makeFence(context, tap)
  })
  afterEach(async () => {
    await sender.close()
    // A kernel may bind its rules to the next tap of this name.
    await removeFence(context, tap)
  })

  it('lets frames pass until the moment that was set last, by the kernel alone', async () => {
    await stands()
    await open(inMs(60_000))
    await passes()
    const untilNs = inMs(700)
    await open(untilNs)
    await passes()
    await sleep(Number((untilNs - clock.boottimeNs()) / MS))
    await stands()
    // A timer of the kernel's and the way of a frame.
    expect(Number((sender.lastNs() - untilNs) / MS)).toBeLessThan(FENCE_LATE_MS)
    await open(inMs(60_000))
    await passes()
    await open(inMs(-1))
    await stands()
  })

  it('is set to what is left when nft was slow, or closed', async () => {
    await open(inMs(60_000))
    delaysMs.push(FENCE_LATE_MS * 2)
    const untilNs = inMs(900)
    await open(untilNs)
    await passes()
    await sleep(Number((untilNs - clock.boottimeNs()) / MS))
    await stands()
    expect(sender.lastNs()).toBeLessThan(untilNs + 100n * MS)
    delaysMs.push(...Array.from({ length: 3 }, () => FENCE_LATE_MS + 50))
    await expect(open(inMs(60_000))).rejects.toMatchObject({ code: 'UNAVAILABLE' })
    await stands()
  })

  it('is removed, also twice, and leaves the tables of others', async () => {
    namespace.run('nft', 'add table netdev others')
    for (let times = 0; times < 2; times++) await removeFence(context, tap)
    expect(namespace.run('nft', 'list', 'tables').trim()).toBe('table netdev others')
    await passes()
    await expect(open(inMs(1000))).rejects.toThrow()
  })
})
