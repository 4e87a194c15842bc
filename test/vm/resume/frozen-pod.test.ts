import { execFileSync } from 'node:child_process'
import { statSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { messageOf } from '../../../src/base/errors.ts'
import type { QuiesceResponse } from '../../../src/gen/microvm/agent/v1/lifecycle.ts'
import type { Pod } from '../../support/containers/pod.ts'
import { startAgentKiller } from '../../support/vm/agent-killer.ts'
import { cannotBoot, type TestGuest } from '../../support/vm/boot-guest.ts'
import { bootDiskPod, type DiskPod } from '../../support/vm/disk-pod.ts'

const NAMES = ['ext4', 'xfs'] as const
const IDS = ['one', 'two', 'three', 'four', 'five']
const MOUNT_POINTS = ['/run/kata-containers/sandbox/storage/xfs', '/run/kata-containers/sandbox/storage/ext4']

/** For how long a freeze may last. */
const LONGEST_MS = 60_000

/** Appends to a file of its own on both disks, and syncs. Says when it has begun. */
const WRITING = (id: string) =>
  `i=0; while true; do i=$((i+1)); echo $i >> /ext4/${id}; echo $i >> /xfs/${id}; [ $i = 1 ] && echo begun; [ $((i % 5)) = 0 ] && sync; usleep 50000; done`

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
    for (const id of IDS) {
      const writing = await pod.run(id, ['sh', '-c', WRITING(id)], onDisks)
      await writing.readUntil('begun\n')
    }
  }, 400_000)
  afterAll(async () => {
    await guest?.stop()
  })

  afterEach(async () => {
    if (!isOff) await lifecycle.thaw({})
  })

  /** When QEMU has written to each disk last. */
  const written = () => NAMES.map((name) => statSync(images[name], { bigint: true }).mtimeNs)

  const sandbox = () => guest.introspection.getSandbox({})

  async function states(): Promise<readonly string[]> {
    const { containers } = await guest.introspection.listContainers({})
    return containers.map(
      ({ containerId, state, frozen }) => `${containerId} ${state}${frozen ? ' frozen' : ''}`,
    )
  }

  async function waitsForDisk(containerId: string): Promise<boolean> {
    const { processes } = await guest.introspection.listProcesses({ containerId })
    return processes.some(({ state }) => state === 'D')
  }

  /** Waits until the guest has written more. */
  async function writes(): Promise<void> {
    const before = written()
    await expect.poll(written, { timeout: 60_000 }).not.toEqual(before)
  }

  /** Returns undefined when a container's sync lasted too long, as it may on a busy machine. */
  async function freezeWithin(timeoutMs: number): Promise<QuiesceResponse | undefined> {
    try {
      return await lifecycle.quiesce({ timeoutMs })
    } catch (error) {
      if (/not frozen within|still thaws/.test(messageOf(error))) return undefined
      throw error
    }
  }

  async function freeze(): Promise<QuiesceResponse> {
    for (;;) {
      const answer = await freezeWithin(LONGEST_MS)
      if (answer !== undefined) return answer
    }
  }

  it('is at rest, with clean disks, until it is thawed', async () => {
    await writes()
    const answer = await freeze()
    expect(answer.containers.toSorted()).toEqual(IDS.toSorted())
    expect(answer.fileSystems).toEqual(expect.arrayContaining(MOUNT_POINTS))
    expect((await states()).filter((each) => each.endsWith(' running frozen'))).toHaveLength(IDS.length)
    const before = written()
    const counts = NAMES.map((name) => {
      execFileSync('cp', ['--sparse=always', images[name], `${images[name]}-copy`])
      return countsIn(name, `${images[name]}-copy`)
    })
    // A container was frozen between its two writes, or before or after both.
    for (const [index, count] of (counts[0] ?? []).entries())
      expect([count, count - 1]).toContain(counts[1]?.[index])
    await expect(pod.add('one', 'e', ['true'])).rejects.toThrow('the pod is frozen')
    await sleep(1000)
    expect(written()).toEqual(before)
    await expect(lifecycle.thaw({})).resolves.toEqual({ wasFrozen: true })
    await writes()
  })

  it('is thawed by vminit when its time is over', async () => {
    for (let timeoutMs = 2000; (await freezeWithin(timeoutMs)) === undefined; )
      timeoutMs = Math.min(LONGEST_MS, 2 * timeoutMs)
    await expect.poll(async () => (await sandbox()).frozen, { timeout: 120_000 }).toBeUndefined()
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
    // Begins anew with more time where the agent is killed before it has frozen the pod.
    let isFrozen = false
    for (let afterMs = 2000; !isFrozen; afterMs *= 2) {
      const before = (await sandbox()).agentRestarts
      await killer.begin(afterMs)
      await killer.begun()
      const answer = await freezeWithin(LONGEST_MS)
      const { frozen, agentRestarts } = await sandbox()
      isFrozen = answer !== undefined && frozen !== undefined && agentRestarts === before
      if (!isFrozen) await lifecycle.thaw({})
      await expect.poll(async () => (await sandbox()).agentRestarts, { timeout: 60_000 }).toBe(before + 1)
      await killer.killed()
    }
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
    for (const containerId of IDS)
      await expect.poll(() => waitsForDisk(containerId), { timeout: 60_000 }).toBe(true)
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
    await freeze()
    await guest.guest.vm.qmp.execute('system_powerdown', {}, AbortSignal.timeout(60_000))
    await guest.guest.vm.exited
    isOff = true
    const counts = NAMES.map((name) => countsIn(name, images[name]))
    expect(counts.flat().every((count) => count > 0)).toBe(true)
    expect(guest.consoleText()).not.toContain('not written within')
  })
})
