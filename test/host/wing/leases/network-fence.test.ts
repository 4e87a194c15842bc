import { type ChildProcess, spawn } from 'node:child_process'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import {
  fencedTap,
  makeFence,
  NFT_MS,
  openFences,
  removeFence,
} from '../../../../src/host/instance/leases/network-fence.ts'
import { makeNetworkNamespace, type NetworkNamespace } from '../../../support/host/network-namespace.ts'
import { realNative } from '../../../support/os/real-native.ts'
import { endChild } from '../../../support/processes.ts'
import { type FrameWatcher, senderArgv, watchFrames, withBridge } from './frame-sender.ts'

const MS = 1_000_000n
const clock = await realNative()
const tap = fencedTap('/state/instances/n-1', 'net', 'tap0')

describe('the fence of a tap', () => {
  let namespace: NetworkNamespace
  let sender: ChildProcess
  let seen: FrameWatcher
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
    const before = seen.frames()
    await expect.poll(() => seen.frames()).toBeGreaterThan(before + 2)
  }
  /** Some frames have been sent meanwhile. */
  const stands = async () => {
    await sleep(100)
    const before = seen.frames()
    await sleep(300)
    expect(seen.frames()).toBe(before)
  }

  beforeAll(async () => {
    namespace = await makeNetworkNamespace()
    withBridge(namespace)
    seen = await watchFrames(namespace, 'seen0', clock.boottimeNs)
  })
  afterAll(async () => {
    await seen.close()
    await namespace.close()
  })
  beforeEach(async () => {
    const [program, ...argv] = senderArgv(namespace, 'tap0', 'br0')
    sender = spawn(program, argv, { stdio: ['ignore', 'ignore', 'inherit'] })
    await passes()
    await makeFence(context, tap)
  })
  afterEach(async () => {
    await endChild(sender, 'SIGKILL')
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
    expect(Number((seen.lastNs() - untilNs) / MS)).toBeLessThan(100)
    await open(inMs(60_000))
    await passes()
    await open(inMs(-1))
    await stands()
  })

  it('is set to what is left when nft was slow, or closed', async () => {
    await open(inMs(60_000))
    delaysMs.push(NFT_MS[0] * 2)
    const untilNs = inMs(900)
    await open(untilNs)
    await passes()
    await sleep(Number((untilNs - clock.boottimeNs()) / MS))
    await stands()
    expect(seen.lastNs()).toBeLessThan(untilNs + 100n * MS)
    delaysMs.push(...NFT_MS.map((ms) => ms + 50))
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
