import { execFileSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { copyFileSync, readFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import type { Pod } from '../../support/containers/pod.ts'
import { startAgentKiller } from '../../support/vm/agent-killer.ts'
import { cannotBoot, type TestGuest } from '../../support/vm/boot-guest.ts'
import { bootDiskPod, type DiskPod } from '../../support/vm/disk-pod.ts'

const NAMES = ['ext4', 'xfs'] as const
const IDS = ['one', 'two', 'three', 'four', 'five']
const MOUNT_POINTS = ['/run/kata-containers/sandbox/storage/xfs', '/run/kata-containers/sandbox/storage/ext4']

/** Appends to a file of its own on both disks, and syncs. */
const WRITING = (id: string) =>
  `i=0; while true; do i=$((i+1)); echo $i >> /ext4/${id}; echo $i >> /xfs/${id}; [ $((i % 5)) = 0 ] && sync; usleep 50000; done`

/** The numbers of lines that the containers have written to a disk, which is mounted here. */
function countsIn(name: string, path: string): readonly number[] {
  const script = `mount -t ${name} -o loop "$0" /mnt && cd /mnt && wc -l ${IDS.join(' ')}`
  const output = execFileSync('unshare', ['--mount', 'sh', '-ec', script, path], { encoding: 'utf8' })
  return output
    .split('\n')
    .slice(0, IDS.length)
    .map((line) => Number.parseInt(line, 10))
}

describe.skipIf(cannotBoot() !== undefined)('a pod of five containers and two disks', () => {
  let guest: TestGuest
  let pod: Pod
  let lifecycle: DiskPod['lifecycle']
  let images: DiskPod['images']
  let onDisks: DiskPod['onDisks']
  let isOff = false

  beforeAll(async () => {
    ;({ guest, pod, lifecycle, images, onDisks } = await bootDiskPod())
    for (const id of IDS) await pod.run(id, ['sh', '-c', WRITING(id)], onDisks)
  }, 400_000)
  afterAll(async () => {
    await guest?.stop()
  })

  afterEach(async () => {
    if (!isOff) await lifecycle.thaw({})
  })

  const hashes = () =>
    NAMES.map((name) => createHash('sha1').update(readFileSync(images[name])).digest('hex'))

  async function states(): Promise<readonly string[]> {
    const { containers } = await guest.introspection.listContainers({})
    return containers.map(
      ({ containerId, state, frozen }) => `${containerId} ${state}${frozen ? ' frozen' : ''}`,
    )
  }

  /** Waits until a container has written more. */
  async function writes(): Promise<void> {
    const before = hashes().join()
    await expect.poll(() => hashes().join(), { timeout: 60_000, interval: 500 }).not.toBe(before)
  }

  /** How long the pod takes to be frozen now, on this machine. */
  async function timeOfFreeze(): Promise<number> {
    const beganMs = performance.now()
    await lifecycle.quiesce({})
    const ms = Math.ceil(performance.now() - beganMs)
    await lifecycle.thaw({})
    return ms
  }

  it('is at rest, with clean disks, until it is thawed', async () => {
    await writes()
    const answer = await lifecycle.quiesce({})
    expect(answer.containers.toSorted()).toEqual(IDS.toSorted())
    expect(answer.fileSystems).toEqual(expect.arrayContaining(MOUNT_POINTS))
    expect((await states()).filter((each) => each.endsWith(' running frozen'))).toHaveLength(IDS.length)
    const before = hashes()
    const counts = NAMES.map((name) => {
      copyFileSync(images[name], `${images[name]}-copy`)
      return countsIn(name, `${images[name]}-copy`)
    })
    // A container was frozen between its two writes, or before or after both.
    for (const [index, count] of (counts[0] ?? []).entries())
      expect([count, count - 1]).toContain(counts[1]?.[index])
    await expect(pod.add('one', 'e', ['true'])).rejects.toThrow('the pod is frozen')
    await sleep(1000)
    expect(hashes()).toEqual(before)
    await expect(lifecycle.thaw({})).resolves.toEqual({ wasFrozen: true })
    await writes()
  })

  it('is thawed by vminit when its time is over', async () => {
    const freezeMs = await timeOfFreeze()
    await lifecycle.quiesce({ timeoutMs: Math.min(60_000, 2000 + 4 * freezeMs) })
    await expect
      .poll(async () => (await guest.introspection.getSandbox({})).frozen, { timeout: 120_000 })
      .toBeUndefined()
    await writes()
    await expect(lifecycle.thaw({})).resolves.toEqual({ wasFrozen: false })
    const { events } = await guest.introspection.getEvents({ afterSequence: 0n, timeoutMs: 0, limit: 0 })
    expect(events.flatMap(({ freezeChanged }) => freezeChanged ?? []).at(-1)).toEqual({
      action: 'thawed',
      reason: 'bound',
    })
  })

  it('is thawed before the next agent serves when the agent is killed', async () => {
    const killer = await startAgentKiller(pod)
    await killer.begin(2000 + 4 * (await timeOfFreeze()))
    await lifecycle.quiesce({})
    const before = (await guest.introspection.getSandbox({})).agentRestarts
    await expect
      .poll(async () => (await guest.introspection.getSandbox({})).agentRestarts, { timeout: 60_000 })
      .toBe(before + 1)
    await killer.killed()
    expect((await states()).filter((each) => each.endsWith(' running'))).toHaveLength(IDS.length + 1)
    await writes()
    await expect(lifecycle.thaw({})).resolves.toEqual({ wasFrozen: false })
    await pod.remove('agent-killer')
  })

  it('is not frozen with a process that waits for a disk, which is named', async () => {
    const freezing = await pod.run(
      'freezing',
      [
        'sh',
        '-c',
        'read a; fsfreeze --freeze /xfs; echo frozen; read b; fsfreeze --unfreeze /xfs; echo thawed; read c',
      ],
      { ...onDisks, capabilities: ['CAP_KILL', 'CAP_SYS_CHROOT', 'CAP_SYS_ADMIN'] },
    )
    await freezing.write('\n')
    await freezing.readUntil('frozen\n')
    await expect(lifecycle.quiesce({})).rejects.toThrow(
      /container (one|two|three|four|five): not frozen within 5 s: no disk or server answers process \d+/,
    )
    await freezing.write('\n')
    await freezing.readUntil('thawed\n')
    await freezing.write('\n')
    await pod.remove('freezing')
    await writes()
  })

  it('is thawed first when the guest is powered off', async () => {
    await lifecycle.quiesce({})
    await guest.guest.vm.qmp.execute('system_powerdown', {}, AbortSignal.timeout(60_000))
    await guest.guest.vm.exited
    isOff = true
    const counts = NAMES.map((name) => countsIn(name, images[name]))
    expect(counts.flat().every((count) => count > 0)).toBe(true)
    expect(guest.consoleText()).not.toContain('not written within')
  })
})
