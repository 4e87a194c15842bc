import { abortable, withTimeout } from '../../base/abort.ts'
import { Changes } from '../../base/changes.ts'
import { errnoOf, messageOf } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import { isWithin } from '../../base/paths.ts'
import { kernelError } from '../errors.ts'
import type { Os } from '../os.ts'
import { killIfAlive } from '../process/kill-if-alive.ts'
import { isEnding } from '../process/proc-stat.ts'

interface Freezer {
  readonly file: string
  readonly freeze: string
  readonly thaw: string
}

const FREEZER_V1: Freezer = { file: 'freezer.state', freeze: 'FROZEN', thaw: 'THAWED' }
const FREEZER_V2: Freezer = { file: 'cgroup.freeze', freeze: '1', thaw: '0' }

/** How long killed processes may take to leave a cgroup, and the pause between two tries to remove it on v1. */
const LEAVE_MS = 2000
const LOOK_MS = 10

/** Sends SIGKILL to every process in the cgroup `folder` and below it. */
export async function killCgroup(os: Os, folder: string, isV2: boolean, log: Logger): Promise<void> {
  await (isV2 ? killV2(os, folder, log) : killV1(os, folder, log))
}

/** Does nothing when it does not exist. */
export async function thawCgroup({ files }: Os, folder: string, isV2: boolean): Promise<void> {
  if ((await files.stat(folder)) === undefined) return
  const { file, thaw } = isV2 ? FREEZER_V2 : FREEZER_V1
  await files.write(`${folder}/${file}`, thaw)
}

/** The file that freezes the cgroup `folder` and all below it, by {@link untilFrozen}. */
export function freezeFileOf(folder: string, isV2: boolean): string {
  return `${folder}/${(isV2 ? FREEZER_V2 : FREEZER_V1).file}`
}

/**
 * Returns once all its processes are frozen by `freeze`, which writes the freeze file. Stopped ones are; one that waits for
 * a dead disk or server never is. Throws the reason of `signal`.
 */
export async function untilFrozen(
  os: Os,
  folder: string,
  isV2: boolean,
  freeze: () => Promise<void>,
  signal: AbortSignal,
): Promise<void> {
  await abortable(freeze(), signal)
  await untilEvent(os, folder, isV2, signal, async () => {
    if (await isFrozen(os, folder, isV2)) return true
    // v1 may miss a process that is forked meanwhile.
    if (!isV2) await abortable(freeze(), signal)
    return false
  })
}

/** False when it does not exist. */
export async function isFrozen({ files }: Os, folder: string, isV2: boolean): Promise<boolean> {
  const [text = ''] = await files.readSmall([`${folder}/${isV2 ? 'cgroup.events' : 'freezer.state'}`])
  return /^(frozen 1|FROZEN)$/m.test(text)
}

/** Whether a process is in the cgroup `path`, and the text of its /proc/PID/stat. See `Cgroup.lookAt`. */
export async function lookAtMember(
  files: Os['files'],
  path: string,
  pid: number,
): Promise<{ readonly isMember: boolean; readonly stat: string }> {
  const file = `/proc/${pid}/cgroup`
  let [table = '', stat = ''] = await files.readSmall([file, `/proc/${pid}/stat`])
  const isGone = stat === '' || isEnding(stat)
  // readSmall returns no text for a table of long paths.
  if (table === '' && !isGone) table = await files.readText(file).catch(() => '')
  // `4:memory:/path`, and `0::/path` on v2.
  const paths = table.split('\n').map((line) => line.split(':').slice(2).join(':'))
  const isMember = isGone || table === '' || paths.some((each) => isWithin(each, path))
  return { isMember, stat }
}

/** One write to cgroup.kill kills all processes in it and below it. Kernels before 5.14 lack that file. */
async function killV2(os: Os, folder: string, log: Logger): Promise<void> {
  const events = await os.scratch.readText(`${folder}/cgroup.events`).catch(() => '')
  if (/^populated 0$/m.test(events) && !/^frozen 1$/m.test(events)) return
  if ((await os.files.stat(folder)) === undefined) return
  const killFile = `${folder}/cgroup.kill`
  if ((await os.files.stat(killFile)) === undefined) {
    return killFrozen(os, folder, FREEZER_V2, log)
  }
  await os.files.write(killFile, '1')
  // The cgroup stays frozen without processes, and a runtime does not delete a paused container.
  await thawBelow(os, folder, FREEZER_V2, log)
}

async function killV1(os: Os, folder: string, log: Logger): Promise<void> {
  const status = await os.scratch.stat(folder)
  if (status === undefined) return
  if (status.links === 2) {
    const read = (file: string) => os.scratch.readText(`${folder}/${file}`).catch(() => undefined)
    if ((await read('cgroup.procs')) === '' && (await read('freezer.state'))?.trim() === FREEZER_V1.thaw)
      return
  }
  await killFrozen(os, folder, FREEZER_V1, log)
}

/** A frozen process cannot fork, and dies when it is thawed. */
async function killFrozen(os: Os, folder: string, freezer: Freezer, log: Logger): Promise<void> {
  await setFreezer(os, `${folder}/${freezer.file}`, freezer.freeze, log)
  try {
    await killListed(os, folder, log)
  } finally {
    await thawBelow(os, folder, freezer, log)
  }
}

/** Thaws all cgroups below it too: a container may have frozen one, and a frozen process does not die. */
async function thawBelow(os: Os, folder: string, { file, thaw }: Freezer, log: Logger): Promise<void> {
  for (const each of await foldersBelow(os, folder)) await setFreezer(os, `${each}/${file}`, thaw, log)
}

async function setFreezer({ files }: Os, file: string, value: string, log: Logger): Promise<void> {
  try {
    await files.write(file, value)
  } catch (error) {
    log.warn('freezer failed', { file, value, error: messageOf(error) })
  }
}

/** Repeats until no new process is listed: freezing takes effect a moment after the write. */
async function killListed(os: Os, folder: string, log: Logger): Promise<void> {
  const killed = new Set<number>()
  for (;;) {
    const fresh = (await pidsBelow(os, folder)).filter((pid) => !killed.has(pid))
    if (fresh.length === 0) return
    for (const pid of fresh) {
      killed.add(pid)
      kill(os, pid, log)
    }
  }
}

function kill(os: Os, pid: number, log: Logger): void {
  try {
    killIfAlive(os, pid)
  } catch (error) {
    log.warn('kill failed', { pid, error: messageOf(error) })
  }
}

/** The pids in the cgroup `folder` and below it. */
export async function pidsBelow(os: Os, folder: string): Promise<number[]> {
  let text = ''
  for (const each of await foldersBelow(os, folder)) text += await membersIn(os, each)
  // cgroup.procs lists a process of another pid namespace as 0.
  return text
    .split('\n')
    .map(Number)
    .filter((pid) => pid > 0)
}

/** Empty for a cgroup that its container has removed (ENODEV when that was after the open). */
async function membersIn({ files }: Os, folder: string): Promise<string> {
  try {
    return await files.readText(`${folder}/cgroup.procs`)
  } catch (error) {
    if (errnoOf(error) !== 'ENOENT' && errnoOf(error) !== 'ENODEV') throw error
    return ''
  }
}

/** Removes cgroups and all below them once their killed processes have left. Tries all, then throws EBUSY when one stays. */
export async function removeCgroups(os: Os, folders: readonly string[], isV2: boolean): Promise<void> {
  const failures = await os.files.removeDirectories(folders)
  const removals = [...failures].map(async ([folder, error]) => {
    if (isGone(error)) return
    for (const each of (await foldersBelow(os, folder)).toReversed()) await removeWhenEmpty(os, each, isV2)
  })
  for (const removal of await Promise.allSettled(removals)) {
    if (removal.status === 'rejected') throw removal.reason
  }
}

/** ENOENT: it was removed before, or under another name of its hierarchy (`cpu` is often a link to `cpu,cpuacct`). */
function isGone(error: unknown): boolean {
  if (errnoOf(error) === 'ENOENT') return true
  if (errnoOf(error) !== 'EBUSY') throw error
  return false
}

function isRemoved({ files }: Os, folder: string): Promise<boolean> {
  return files.removeDirectory(folder).then(() => true, isGone)
}

/** Retries while killed processes leave; only v2 notifies of that. Throws EBUSY when one stays. */
async function removeWhenEmpty(os: Os, folder: string, isV2: boolean): Promise<void> {
  if (await isRemoved(os, folder)) return
  const givenUp = new AbortController()
  const removal = untilEvent(os, folder, isV2, givenUp.signal, () => isRemoved(os, folder))
  try {
    await withTimeout(os.clock, LEAVE_MS, removal, () => kernelError('rmdir', folder, 'EBUSY'))
  } finally {
    givenUp.abort()
  }
}

/** Asks after each event of the cgroup, on v1 again and again, until `isDone`. Throws the reason of `signal`. */
async function untilEvent(
  os: Os,
  folder: string,
  isV2: boolean,
  signal: AbortSignal,
  isDone: () => Promise<boolean>,
): Promise<void> {
  const changes = new Changes()
  const events = isV2 ? tryToWatch(os, folder, changes) : undefined
  const over = new AbortController()
  const either = AbortSignal.any([signal, over.signal])
  try {
    for (;;) {
      const changed = events === undefined ? os.clock.sleep(LOOK_MS, either) : changes.next(either)
      changed.catch(() => {})
      if (await isDone()) return
      await changed
    }
  } finally {
    over.abort()
    events?.close()
  }
}

/** Undefined when the kernel has no inotify watch left. */
function tryToWatch({ cgroupEvents }: Os, folder: string, changes: Changes): { close(): void } | undefined {
  try {
    return cgroupEvents.onModified(`${folder}/cgroup.events`, () => changes.announce())
  } catch {
    return undefined
  }
}

/** Parents come before their children. */
async function foldersBelow(os: Os, folder: string): Promise<string[]> {
  const folders = [folder]
  const hasNone = (await os.scratch.stat(folder))?.links === 2
  for (const name of hasNone ? [] : await os.files.listFolders(folder)) {
    folders.push(...(await foldersBelow(os, `${folder}/${name}`)))
  }
  return folders
}
