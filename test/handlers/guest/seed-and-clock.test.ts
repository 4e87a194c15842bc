import { afterEach, describe, expect, it, vi } from 'vitest'
import { AgentError } from '../../../src/base/errors.ts'
import { reseedRandom, setGuestDateTime } from '../../../src/handlers/guest/seed-and-clock.ts'
import { FakeSystem } from '../../support/fakes/process/fake-system.ts'

describe('setGuestDateTime', () => {
  afterEach(() => {
    vi.useRealTimers()
  })

  it.each([
    [0n, 0n, 0, 0n],
    [1_800_000_000n, 999_999n, 0, 1_800_000_000_999_999n],
    [1_800_000_000n, 999_999n, 2_500.0004, 1_800_000_003_499_999n],
  ])('sets %s s and %s µs of a request that is %d ms old', (Sec, Usec, ageMs, expected) => {
    const system = new FakeSystem()
    setGuestDateTime(system, { Sec, Usec }, ageMs)
    expect(system.timeUs).toBe(expected)
  })

  it.each([
    [-1n, 0n, 'Sec: -1, want 0 to 9007199254740991'],
    [2n ** 62n, 0n, 'Sec: 4611686018427387904, want 0 to 9007199254740991'],
    [1n, -1n, 'Usec: -1, want 0 to 999999'],
    [1n, 1_000_000n, 'Usec: 1000000, want 0 to 999999'],
  ])('refuses %s s and %s µs', (Sec, Usec, message) => {
    const system = new FakeSystem()
    const expected = expect.objectContaining({ code: 'INVALID_ARGUMENT', message })
    expect(() => setGuestDateTime(system, { Sec, Usec }, 0)).toThrow(expected)
    expect(system.timeUs).toBeUndefined()
  })

  it('returns by how many milliseconds it has moved the clock', () => {
    vi.useFakeTimers({ toFake: ['Date'], now: 1_800_000_000_000 })
    expect(setGuestDateTime(new FakeSystem(), { Sec: 1_800_000_100n, Usec: 2000n }, 3)).toBe(100_005n)
    expect(setGuestDateTime(new FakeSystem(), { Sec: 1_799_999_999n, Usec: 0n }, 0)).toBe(-1000n)
  })
})

describe('reseedRandom', () => {
  it('passes the bytes to the kernel, and records before that they must not be passed again', async () => {
    const system = new FakeSystem()
    const addedBefore: string[][] = []
    await reseedRandom(system, Buffer.from('noise'), {
      beforeEffect: () => addedBefore.push([...system.entropy]),
    })
    expect(system.entropy).toEqual(['noise'])
    expect(addedBefore).toEqual([[]])
    expect(system.reseeds).toBe(1)
  })

  it('succeeds where the generators of this process cannot be reseeded', async () => {
    const system = new FakeSystem()
    system.reseedGenerators = () => {
      throw new AgentError('INTERNAL', 'reseed generators: ENOSYS', { errno: 'ENOSYS' })
    }
    await reseedRandom(system, Buffer.from('noise'), { beforeEffect: () => {} })
    expect(system.entropy).toEqual(['noise'])
  })

  it('refuses an empty request, even when it is repeated', async () => {
    let isTold = false
    const refused = reseedRandom(new FakeSystem(), new Uint8Array(), {
      beforeEffect: () => {
        isTold = true
      },
    })
    await expect(refused).rejects.toMatchObject({
      code: 'INVALID_ARGUMENT',
      message: 'data: missing entropy data',
    })
    expect(isTold).toBe(false)
  })
})
