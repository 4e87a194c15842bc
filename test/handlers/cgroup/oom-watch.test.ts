import { describe, expect, it } from 'vitest'
import { watchOom } from '../../../src/handlers/cgroup/oom-watch.ts'
import { FakeOs } from '../../support/fakes/fake-os.ts'

const FOLDER = '/cgroup'

async function watched(isV2: boolean, before?: bigint, present = 0) {
  const os = new FakeOs()
  const file = `${FOLDER}/${isV2 ? 'memory.events' : 'memory.oom_control'}`
  const kills = (count: number) =>
    os.files.put(
      file,
      isV2
        ? `low 0\nhigh 0\nmax 9\noom 1\noom_kill ${count}\noom_group_kill 0\n`
        : `oom_kill_disable 0\nunder_oom 0\noom_kill ${count}\n`,
    )
  await kills(present)
  let calls = 0
  const watch = await watchOom(os, { folder: FOLDER, isV2 }, before, () => {
    calls += 1
  })
  const settle = () => new Promise(setImmediate)
  return {
    os,
    watch,
    kills,
    calls: () => calls,
    happen: async () => {
      os.cgroupEvents.happen(file)
      await settle()
    },
    settle,
    remove: () => os.files.removeTree(FOLDER),
  }
}

describe.each([true, false])('watchOom (v2: %s)', (isV2) => {
  it('reports each kill once', async () => {
    const { kills, happen, calls } = await watched(isV2)
    await kills(1)
    await happen()
    await happen()
    expect(calls()).toBe(1)
    await kills(3)
    await happen()
    expect(calls()).toBe(2)
  })

  it('reports a kill from before the watch at the first look', async () => {
    const { watch, calls, happen } = await watched(isV2, 1n, 2)
    await watch.look()
    expect(calls()).toBe(1)
    await happen()
    expect(calls()).toBe(1)
  })

  it('reports an unreported kill from before the watch', async () => {
    const { kills, happen, calls } = await watched(isV2, 2n)
    await kills(2)
    await happen()
    expect(calls()).toBe(0)
    await kills(3)
    await happen()
    expect(calls()).toBe(1)
  })

  it('reports nothing for an event without a kill', async () => {
    const { happen, calls } = await watched(isV2)
    await happen()
    expect(calls()).toBe(0)
  })

  it('reports at its end a kill without an event, and nothing afterwards', async () => {
    const { watch, kills, happen, calls, os } = await watched(isV2)
    await kills(1)
    await watch.end()
    expect(calls()).toBe(1)
    await kills(2)
    await happen()
    expect(calls()).toBe(1)
    expect(os.cgroupEvents.watched).toEqual([])
    expect(os.clock.sleeping).toBe(0)
  })

  it('treats a removed cgroup as one without kills', async () => {
    const { watch, remove, happen, calls } = await watched(isV2)
    await remove()
    await happen()
    await watch.end()
    expect(calls()).toBe(0)
  })

  it('throws when the cgroup is missing', async () => {
    const watching = watchOom(new FakeOs(), { folder: '/nothing', isV2 }, undefined, () => {})
    await expect(watching).rejects.toMatchObject({ errno: 'ENOENT' })
  })
})

describe('watchOom on v1', () => {
  it('reads the counter again after an event that precedes its kill', async () => {
    const { os, kills, happen, calls, settle, watch } = await watched(false)
    await happen()
    expect(os.clock.sleeping).toBe(1)
    await kills(1)
    os.clock.advance(10)
    await settle()
    expect(calls()).toBe(1)
    expect(os.clock.sleeping).toBe(0)
    await watch.end()
  })
})
