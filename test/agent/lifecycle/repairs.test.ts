import { describe, expect, it } from 'vitest'
import { neverAborted } from '../../../src/base/abort.ts'
import { Identity, ResumedRequest } from '../../../src/gen/microvm/agent/v1/lifecycle.ts'
import { GUEST_MS, type RestoredGuest, restoredGuest } from '../../support/agent/restored-guest.ts'
import { FakeOs } from '../../support/fakes/fake-os.ts'
import { MemoryStateFiles } from '../../support/fakes/files/memory-state-files.ts'
import { settle } from '../../support/pending.ts'

const FORKED = 'random: crng reseeded due to virtual machine fork'
const SEED = Buffer.alloc(32, 'seed')
const DAY_MS = 24 * 3600 * 1000
const DEVICE =
  'remove@/devices/pci0000:00/0000:00:05.0/virtio3\0SUBSYSTEM=virtio\0MODALIAS=virtio:d00000013v00001AF4\0'

const call = { ageMs: () => 0, peer: 'tcp 127.0.0.1 9' }

async function resumed(guest: RestoredGuest, request: Parameters<typeof ResumedRequest.fromPartial>[0]) {
  const { number } = await guest.lifecycle.resumed(ResumedRequest.fromPartial(request), call)
  await settle()
  return guest.lifecycle.getResume({ number, timeoutMs: 0 }, neverAborted)
}

/** The same without a seed, where the kernel's line may still come. */
async function resumedLater(guest: RestoredGuest, generation: string) {
  const { number } = await guest.lifecycle.resumed(ResumedRequest.fromPartial({ generation }), call)
  await settle()
  for (let looks = 0; looks < 100; looks++) {
    guest.os.clock.advance(20)
    await settle()
  }
  return guest.lifecycle.getResume({ number, timeoutMs: 0 }, neverAborted)
}

async function last({ lifecycle }: RestoredGuest) {
  await settle()
  return lifecycle.getResume({ number: 0n, timeoutMs: 0 }, neverAborted)
}

function outcomes({ steps }: { readonly steps: readonly { name: string; state: string }[] }) {
  return Object.fromEntries(steps.map(({ name, state }) => [name, state]))
}

function rtc(ms: number) {
  return { source: 'rtc', ns: BigInt(Math.floor(ms / 1000)) * 1_000_000_000n, precisionMs: 1000 } as const
}

describe('a repair', () => {
  it('runs its steps in order, tells each, and then that the guest is ready', async () => {
    const guest = await restoredGuest()
    const told = await resumed(guest, { generation: 'a', seed: SEED, timeNs: BigInt(GUEST_MS) * 1_000_000n })
    expect(told).toMatchObject({ number: 1n, trigger: 'call', state: 'ready', randomness: 'renewed' })
    const names = ['thaw', 'connections', 'kernel_random', 'own_random', 'clock', 'identity', 'ready']
    expect(told.steps.map(({ name }) => name)).toEqual(names)
    const { events } = guest.events.after(0n, 100)
    expect(events.map(({ repairStep, ready }) => repairStep?.name ?? ready?.generation)).toEqual([
      ...names,
      'a',
    ])
    expect(guest.os.system.entropy).toEqual([`${SEED}a`])
    expect(guest.os.system.reseeds).toBe(1)
    expect([guest.dropped, guest.frozen]).toEqual([['tcp 127.0.0.1 9'], ['thawed', 'ready']])
  })

  it('is answered from its record when its generation comes again, also an old one', async () => {
    const guest = await restoredGuest()
    for (const generation of ['a', 'b']) await resumed(guest, { generation, seed: SEED })
    for (let time = 0; time < 100; time++) {
      expect((await resumed(guest, { generation: time % 2 === 0 ? 'a' : 'b', seed: SEED })).number).toBe(
        time % 2 === 0 ? 1n : 2n,
      )
    }
    expect(guest.os.system.entropy).toHaveLength(2)
  })

  it('waits for the one before it, and refuses calls beyond some', async () => {
    const held = Promise.withResolvers<void>()
    const frozen = { resumed: () => held.promise, ready: async () => {} }
    const guest = await restoredGuest({ parts: { frozen } })
    const begin = (generation: string) =>
      guest.lifecycle.resumed(ResumedRequest.fromPartial({ generation, seed: SEED }), call)
    const numbers: bigint[] = []
    for (const generation of ['a', 'b', 'c', 'd']) numbers.push((await begin(generation)).number)
    expect(numbers).toEqual([1n, 2n, 3n, 4n])
    await expect(begin('e')).rejects.toMatchObject({ code: 'RESOURCE_EXHAUSTED' })
    expect(await begin('b')).toEqual({ number: 2n })
    const waiting = guest.lifecycle.getResume({ number: 4n, timeoutMs: 1000 }, neverAborted)
    held.resolve()
    expect(await waiting).toMatchObject({ number: 4n, state: 'ready' })
  })

  it('is begun by what the kernel says', async () => {
    const guest = await restoredGuest()
    guest.os.kernelLog.say('eth0: link up')
    guest.os.kernelLog.say(FORKED)
    expect(await last(guest)).toMatchObject({ trigger: 'kernel', generation: '', randomness: 'renewed' })
    expect(guest.dropped).toEqual([''])
  })

  it('closes no connection of a call for the word of the kernel that comes after it, of the same restore', async () => {
    const guest = await restoredGuest()
    await resumed(guest, { generation: 'a', seed: SEED })
    for (const afterMs of [20, 9_000, 2_000]) {
      guest.os.clock.advance(afterMs)
      guest.os.kernelLog.say(FORKED)
      expect(await last(guest)).toMatchObject({ trigger: 'kernel', state: 'ready' })
    }
    expect(guest.dropped).toEqual([call.peer, call.peer, call.peer, ''])
  })

  it('is not begun by a line of the kernel that ends in the text of a program', async () => {
    const guest = await restoredGuest()
    guest.os.kernelLog.say(`process '${FORKED}`)
    await expect(last(guest)).rejects.toMatchObject({ code: 'NOT_FOUND' })
  })

  it('is begun by the kernel event of a new generation', async () => {
    const guest = await restoredGuest()
    guest.os.uevents.send('change@/devices/platform/vmgenid\0SUBSYSTEM=platform\0NEW_VMGENID=1\0')
    expect(await last(guest)).toMatchObject({ trigger: 'kernel', state: 'ready' })
  })

  it('is not begun twice by a line that an agent has seen, but by one that came without an agent', async () => {
    const first = await restoredGuest()
    first.os.kernelLog.say(FORKED)
    await last(first)
    const { os, state } = first
    const second = await restoredGuest({ os, state, isFirst: false })
    expect(await last(second)).toMatchObject({ number: 1n })
    os.kernelLog.sayAlone(FORKED)
    const third = await restoredGuest({ os, state, isFirst: false, logMs: 1000 })
    expect(await last(third)).toMatchObject({ number: 1n })
    os.clock.advance(1000)
    expect(await last(third)).toMatchObject({ number: 2n })
  })

  it.each([true, false])(
    'is not begun by a line from before the first agent, which the next one reads (has served: %s)',
    async (isServing) => {
      const os = new FakeOs()
      os.kernelLog.sayAlone(FORKED)
      os.clock.advance(1)
      const { state } = await restoredGuest({ os, isServing })
      const next = await restoredGuest({ os, state, isFirst: false })
      await expect(last(next)).rejects.toMatchObject({ code: 'NOT_FOUND' })
    },
  )

  it('is not begun by such a line when the first agent has died before it noted its start', async () => {
    const os = new FakeOs()
    os.kernelLog.sayAlone(FORKED)
    os.clock.advance(1)
    const next = await restoredGuest({ os, isFirst: false })
    await expect(last(next)).rejects.toMatchObject({ code: 'NOT_FOUND' })
  })

  it('is one for a device that comes and goes', async () => {
    const guest = await restoredGuest()
    for (let time = 0; time < 100; time++) guest.os.uevents.send(DEVICE)
    const told = await last(guest)
    expect(told).toMatchObject({ number: 1n, trigger: 'device', state: 'ready', randomness: 'unknown' })
    expect(outcomes(told)).toMatchObject({ thaw: 'skipped', kernel_random: 'skipped', own_random: 'done' })
    expect([guest.frozen, guest.dropped]).toEqual([[], []])
  })

  it('forgets the oldest, but keeps calls longer than devices', async () => {
    const guest = await restoredGuest()
    await resumed(guest, { generation: 'a', seed: SEED })
    for (let time = 0; time < 20; time++) {
      guest.os.uevents.send(DEVICE)
      await settle()
    }
    expect(await resumed(guest, { generation: 'a' })).toMatchObject({ number: 1n })
    const second = guest.lifecycle.getResume({ number: 2n, timeoutMs: 0 }, neverAborted)
    await expect(second).rejects.toMatchObject({ code: 'NOT_FOUND', message: 'number: no repair 2 is known' })
  })

  it.each([
    [{ generation: '' }, 'generation: 0 bytes long, want 1 to 128'],
    [{ generation: 'x'.repeat(129) }, 'generation: 129 bytes long, want 1 to 128'],
    [{ generation: 'a', seed: Buffer.alloc(31) }, 'seed: 31 bytes, want none or 32 to 4096'],
    [{ generation: 'a', seed: Buffer.alloc(4097) }, 'seed: 4097 bytes, want none or 32 to 4096'],
    [
      { generation: 'a', identity: Identity.fromPartial({ hostname: 'a b' }) },
      'identity.hostname: not a host name, want 1 to 64 letters, digits, dots and inner hyphens',
    ],
    [
      { generation: 'a', identity: Identity.fromPartial({ hosts: '\0' }) },
      'identity.hosts: contains a NUL byte',
    ],
  ])('is refused for %j', async (request, message) => {
    const { lifecycle } = await restoredGuest()
    const refused = lifecycle.resumed(ResumedRequest.fromPartial(request), call)
    await expect(refused).rejects.toMatchObject({ code: 'INVALID_ARGUMENT', message })
  })
})

describe('randomness', () => {
  it('is shared where nothing gives bytes that clones do not have, and the guest is ready all the same', async () => {
    const guest = await restoredGuest()
    const told = await resumedLater(guest, 'a')
    expect(told).toMatchObject({ state: 'ready', randomness: 'shared' })
    expect(told.steps.find(({ name }) => name === 'kernel_random')).toMatchObject({
      state: 'failed',
      reason: 'no random bytes that clones do not have: open /dev/hwrng: ENOENT',
    })
    expect(guest.events.after(0n, 100).events.at(-1)?.ready?.randomness).toBe('shared')
  })

  it('comes from hardware', async () => {
    const guest = await restoredGuest()
    guest.os.system.hardware = Buffer.from('fresh')
    expect(await resumed(guest, { generation: 'a' })).toMatchObject({ randomness: 'renewed' })
    expect(guest.os.system.entropy).toEqual(['fresh'])
  })

  it('is renewed by the kernel itself right before the call, and not long before', async () => {
    const guest = await restoredGuest()
    guest.os.kernelLog.say(FORKED)
    await settle()
    expect(await resumed(guest, { generation: 'a' })).toMatchObject({ randomness: 'renewed' })
    guest.os.kernelLog.say(FORKED)
    await settle()
    guest.os.clock.advance(11_000)
    expect(await resumedLater(guest, 'b')).toMatchObject({ randomness: 'shared' })
  })

  it('is renewed by the kernel itself before a device goes and the call comes, but for the first call only', async () => {
    const guest = await restoredGuest()
    guest.os.kernelLog.say(FORKED)
    await settle()
    guest.os.clock.advance(20)
    guest.os.uevents.send(DEVICE)
    await settle()
    expect(await resumed(guest, { generation: 'a' })).toMatchObject({ number: 3n, randomness: 'renewed' })
    guest.os.clock.advance(20)
    expect(await resumedLater(guest, 'b')).toMatchObject({ number: 4n, randomness: 'shared' })
  })

  it('is renewed by the kernel itself a moment after the call', async () => {
    const guest = await restoredGuest()
    const { number } = await guest.lifecycle.resumed(ResumedRequest.fromPartial({ generation: 'a' }), call)
    await settle()
    guest.os.kernelLog.say(FORKED)
    guest.os.clock.advance(20)
    await settle()
    const told = await guest.lifecycle.getResume({ number, timeoutMs: 0 }, neverAborted)
    expect(told).toMatchObject({ state: 'ready', randomness: 'renewed' })
  })

  it('is shared where the generators of the agent cannot be renewed', async () => {
    const os = new FakeOs()
    os.system.reseedGenerators = () => {
      throw new Error('ENOSYS')
    }
    const told = await resumed(await restoredGuest({ os }), { generation: 'a', seed: SEED })
    expect(told).toMatchObject({ state: 'ready', randomness: 'shared' })
  })

  it('leaves no seed in the state', async () => {
    const guest = await restoredGuest()
    await resumed(guest, { generation: 'a', seed: SEED })
    expect(Buffer.from(guest.state.read('lifecycle') ?? []).includes('seedseed')).toBe(false)
  })
})

describe('the clock', () => {
  it('is moved by what the host has gone on, and tells for how long the guest stood still', async () => {
    const os = new FakeOs()
    os.system.host = rtc(GUEST_MS)
    const guest = await restoredGuest({ os })
    await settle()
    os.clock.advance(5000)
    os.system.host = rtc(GUEST_MS + 5000 + DAY_MS)
    const told = await resumed(guest, { generation: 'a', seed: SEED })
    expect(told).toMatchObject({ clockStepMs: BigInt(DAY_MS), stoodStillMs: BigInt(DAY_MS) })
    expect(os.system.timeUs).toBe(BigInt(GUEST_MS + 5000 + DAY_MS) * 1000n)
  })

  it('is read by one at a time', async () => {
    const os = new FakeOs()
    os.system.host = rtc(GUEST_MS)
    const { lifecycle } = await restoredGuest({ os })
    const looks = await Promise.all([lifecycle.clockFeature(), lifecycle.clockFeature()])
    expect(looks.map(({ detail }) => detail)).toEqual(["as the host's, by rtc", "as the host's, by rtc"])
  })

  it('is not moved by an RTC in local time, not even after a death of the agent', async () => {
    const os = new FakeOs()
    os.system.host = rtc(GUEST_MS + 7_200_000)
    const { state } = await restoredGuest({ os })
    await settle()
    os.clock.advance(3000)
    os.system.host = rtc(GUEST_MS + 7_200_000 + 3000)
    const next = await restoredGuest({ os, state, isFirst: false, parts: { unixMs: () => GUEST_MS + 3000 } })
    expect(await resumed(next, { generation: 'a', seed: SEED })).toMatchObject({ clockStepMs: 0n })
    expect(os.system.timeUs).toBeUndefined()
  })

  it('is moved by a clock of PTP even if it was wrong from the first start', async () => {
    const os = new FakeOs()
    os.system.host = { source: 'ptp', ns: BigInt(GUEST_MS + DAY_MS) * 1_000_000n, precisionMs: 1 }
    const guest = await restoredGuest({ os })
    await settle()
    expect(await resumed(guest, { generation: 'a', seed: SEED })).toMatchObject({
      clockStepMs: BigInt(DAY_MS),
    })
  })

  it('is moved by the time of the call, and by the age of the call', async () => {
    const guest = await restoredGuest()
    const late = { ageMs: () => 250, peer: '' }
    const timeNs = BigInt(GUEST_MS + 60_000) * 1_000_000n
    await guest.lifecycle.resumed(ResumedRequest.fromPartial({ generation: 'a', seed: SEED, timeNs }), late)
    expect(await last(guest)).toMatchObject({ clockStepMs: 60_250n, stoodStillMs: undefined })
  })

  it('stays where nothing tells the time of the host', async () => {
    const told = await resumed(await restoredGuest(), { generation: 'a', seed: SEED })
    expect(told.clockStepMs).toBeUndefined()
    expect(outcomes(told)).toMatchObject({ clock: 'failed', ready: 'done' })
  })

  it('stays where another init cares for it, unless the call tells the time', async () => {
    const os = new FakeOs()
    os.system.host = rtc(GUEST_MS + DAY_MS)
    const guest = await restoredGuest({ os, parts: { isInit: false } })
    expect(outcomes(await resumed(guest, { generation: 'a', seed: SEED }))).toMatchObject({ clock: 'failed' })
  })

  it('is told to be behind once, after a connection broke', async () => {
    const os = new FakeOs()
    os.system.host = rtc(GUEST_MS)
    const guest = await restoredGuest({ os })
    await settle()
    guest.lifecycle.connectionBroke()
    await settle()
    os.clock.advance(2000)
    os.system.host = rtc(GUEST_MS + 2000 + 60_000)
    for (let time = 0; time < 3; time++) {
      guest.lifecycle.connectionBroke()
      await settle()
      os.clock.advance(1000)
      os.system.host = rtc(GUEST_MS + 3000 + time * 1000 + 60_000)
    }
    const behind = guest.events.after(0n, 100).events.flatMap(({ clockBehind }) => clockBehind ?? [])
    expect(behind).toEqual([{ behindMs: 60_000n }])
    expect(await guest.lifecycle.clockFeature()).toEqual({
      name: 'clock',
      missing: "60000 ms behind the host's",
    })
    await guest.lifecycle.clockWasSet()
    expect(await guest.lifecycle.clockFeature()).toEqual({ name: 'clock', detail: "as the host's, by rtc" })
  })
})

describe('another identity', () => {
  const identity = Identity.fromPartial({ hostname: 'clone', dns: ['nameserver 10.9.9.9'] })

  it('is taken in the name, the hosts and the name servers', async () => {
    const guest = await restoredGuest()
    expect(await resumed(guest, { generation: 'a', seed: SEED, identity })).toMatchObject({ state: 'ready' })
    const { files, mounts, system } = guest.os
    expect(system.hostname).toBe('clone')
    expect(await files.readText('/own/etc/hosts')).toBe(
      '127.0.0.1 localhost\n10.0.0.2 clone first.pod # clone\n'.replace('# clone', '# clone'),
    )
    expect(await files.readText('/own/etc/resolv.conf')).toBe('nameserver 10.9.9.9')
    expect(mounts.entries.map(({ mountPoint }) => mountPoint)).toEqual(
      expect.arrayContaining(['/etc/hosts', '/etc/resolv.conf']),
    )
  })

  it('holds containers until the guest is ready, unless they are not to be held', async () => {
    const guest = await restoredGuest()
    await resumed(guest, { generation: 'a', seed: SEED, identity })
    await resumed(guest, { generation: 'b', seed: SEED, identity: { ...identity, holdContainers: false } })
    expect(guest.frozen).toEqual(['held', 'ready', 'thawed', 'ready'])
  })

  it('leaves the guest not ready, and its containers held, where it cannot be taken', async () => {
    const interfaces = [{ name: 'eth9', hwAddr: '02:00:00:00:00:09' }]
    const guest = await restoredGuest()
    const told = await resumed(guest, { generation: 'a', seed: SEED, identity: { ...identity, interfaces } })
    expect(told.state).toBe('failed')
    expect(outcomes(told)).toMatchObject({ identity: 'failed', ready: 'failed' })
    expect(guest.frozen).toEqual(['held'])
    expect(guest.events.after(0n, 100).events.some(({ ready }) => ready !== undefined)).toBe(false)
  })

  it('is held from the word of the kernel on, which comes before the call', async () => {
    const guest = await restoredGuest()
    guest.os.kernelLog.say(FORKED)
    await settle()
    expect(guest.frozen).toEqual(['held'])
  })
})

describe('the death of an agent', () => {
  it('at any write of a repair is followed by an agent that ends it', async () => {
    const states: Uint8Array[] = []
    const dying = new MemoryStateFiles()
    const guest = await restoredGuest({ state: dying })
    const write = dying.write.bind(dying)
    dying.write = (path, bytes) => {
      write(path, bytes)
      if (path === 'lifecycle') states.push(bytes)
    }
    const identity = Identity.fromPartial({ hostname: 'clone' })
    const request = { generation: 'a', seed: SEED, identity, timeNs: BigInt(GUEST_MS + DAY_MS) * 1_000_000n }
    await resumed(guest, request)
    // The request, seven steps, and the mark of the clock where there is one.
    expect(states.length).toBeGreaterThanOrEqual(8)
    for (const [index, bytes] of states.entries()) {
      const state = new MemoryStateFiles()
      state.write('lifecycle', bytes)
      const next = await restoredGuest({ state, isFirst: false })
      const told = await last(next)
      expect(told, `death after write ${index}`).toMatchObject({
        number: 1n,
        state: 'ready',
        randomness: 'renewed',
      })
      expect(told.steps).toHaveLength(7)
      expect(await resumed(next, request)).toMatchObject({ number: 1n })
      if (index === states.length - 1) continue
      const names = next.events.after(0n, 100).events.flatMap(({ repairStep }) => repairStep?.name ?? [])
      expect(names).toEqual(told.steps.map(({ name }) => name))
      expect(next.frozen.at(-1)).toBe('ready')
    }
  })

  it('with a damaged record begins anew', async () => {
    const state = new MemoryStateFiles()
    state.write('lifecycle', Buffer.from('nonsense'))
    const guest = await restoredGuest({ state, isFirst: false })
    expect(guest.lines.some(({ level }) => level === 'error')).toBe(true)
    expect(await resumed(guest, { generation: 'a', seed: SEED })).toMatchObject({
      number: 1n,
      state: 'ready',
    })
  })
})
