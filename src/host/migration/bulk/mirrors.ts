import { setTimeout as delay } from 'node:timers/promises'
import { AgentError } from '../../../base/errors.ts'
import { type BulkDisk, type BulkQemu, NAMES } from './bulk.ts'
import { beginMirror, checkMirror, finishMirror, mirrorDone, mirrorOf, stopMirror } from './mirror-job.ts'
import type { Watch } from './watch.ts'

const LOOK_MS = 50

/** What a mirror may still have to copy when the guest is stopped for the rest. */
const REST_BYTES = 2 * 2 ** 20

/** How long the guest may stand still for that rest. */
const REST_MS = 500

/** A mirror that has copied a disk so many times over does not catch up with its guest. */
const MOST_TIMES = 2

interface Mirrors {
  readonly qemu: BulkQemu
  readonly disks: readonly BulkDisk[]
  readonly watch: Watch
  /** Bytes per second of all. */
  readonly bandwidth: number
}

/**
 * Copies disks while the guest runs, and then has each write end only once it is on both sides. QEMU 7.2 cannot change the mode of a
 * mirror: the guest stands still for a moment, in which a mirror that copies in the background ends, and one that writes to both
 * begins. A mirror that does not catch up with its guest is begun anew, as one that writes to both from the start.
 */
export async function copyToStep(mirrors: Mirrors): Promise<void> {
  const { disks } = mirrors
  await Promise.all(disks.map((_, index) => begin(mirrors, index, 'background')))
  const caughtUp = await Promise.all(disks.map((_, index) => catchUp(mirrors, index)))
  const ready = disks.flatMap((_, index) => (caughtUp[index] ? [index] : []))
  const switched = await switchModes(mirrors, ready)
  const others = disks.flatMap((_, index) => (switched.includes(index) ? [] : [index]))
  await Promise.all(others.map((index) => beginAnew(mirrors, index)))
}

/** Ends mirrors that write to both. The guest stands still. */
export async function finishMirrors({ qemu, disks, watch }: Mirrors): Promise<void> {
  for (const [index, { key }] of disks.entries()) {
    watch.mirrorEnds(index, key)
    await finishMirror(qemu, index, key)
    watch.mirrorHasEnded(index)
  }
}

async function begin(mirrors: Mirrors, index: number, mode: 'background' | 'write-blocking'): Promise<void> {
  const { qemu, watch, bandwidth, disks } = mirrors
  const disk = diskAt(disks, index)
  const speed = Math.max(1, Math.floor(bandwidth / disks.length))
  await beginMirror(qemu, { index, disk, mode, speed, sync: disk.sync })
  watch.mirrorBegins(index, disk.key)
}

async function catchUp({ qemu, disks }: Mirrors, index: number): Promise<boolean> {
  const { key, sizeBytes } = diskAt(disks, index)
  for (;;) {
    const job = checkMirror(key, await mirrorOf(qemu, NAMES.disk(index)))
    if (job.status === 'ready' || job.len - job.offset <= REST_BYTES) return true
    if (job.offset > MOST_TIMES * sizeBytes + REST_BYTES) return false
    await delay(LOOK_MS, undefined, { signal: qemu.signal })
  }
}

/** Returns the disks whose rest was copied in time. */
async function switchModes(mirrors: Mirrors, indices: readonly number[]): Promise<readonly number[]> {
  const { qmp, signal } = mirrors.qemu
  if (indices.length === 0) return []
  const { running } = await qmp.execute('query-status', {}, signal)
  if (running) await qmp.execute('stop', {}, signal)
  try {
    const late = AbortSignal.timeout(REST_MS)
    const switched: number[] = []
    for (const index of indices) if (await switchMode(mirrors, index, late)) switched.push(index)
    return switched
  } finally {
    if (running) await qmp.execute('cont', {}, signal)
  }
}

async function switchMode(
  { qemu, disks, watch }: Mirrors,
  index: number,
  late: AbortSignal,
): Promise<boolean> {
  const disk = diskAt(disks, index)
  const limit = AbortSignal.any([qemu.signal, late])
  const isReady = await mirrorDone({ ...qemu, signal: limit }, { index, key: disk.key }, ['ready']).then(
    () => true,
    (error) => {
      if (error instanceof AgentError || qemu.signal.aborted) throw error
      return false
    },
  )
  if (!isReady) return false
  watch.mirrorEnds(index, disk.key)
  await finishMirror(qemu, index, disk.key)
  await beginMirror(qemu, { index, disk, mode: 'write-blocking', speed: 0, sync: 'none' })
  watch.mirrorBegins(index, disk.key)
  return true
}

async function beginAnew(mirrors: Mirrors, index: number): Promise<void> {
  const { qemu, disks, watch } = mirrors
  watch.mirrorHasEnded(index)
  await stopMirror(qemu, NAMES.disk(index))
  await begin(mirrors, index, 'write-blocking')
  await mirrorDone(qemu, { index, key: diskAt(disks, index).key }, ['ready'])
}

function diskAt(disks: readonly BulkDisk[], index: number): BulkDisk {
  const disk = disks[index]
  if (disk === undefined) throw new AgentError('INTERNAL', `no disk ${index}`)
  return disk
}
