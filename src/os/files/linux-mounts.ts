import { constants, release } from 'node:os'
import { setTimeout as sleep } from 'node:timers/promises'
import { withTimeout } from '../../base/abort.ts'
import { AgentError } from '../../base/errors.ts'
import { inStep } from '../../base/step.ts'
import { startTimer } from '../clock.ts'
import { checkErrno, failed, tooLong, unwrap } from '../errors.ts'
import type { Native } from '../native.ts'
import type { Tools } from '../process/tools.ts'
import { linuxFiles } from './linux-files.ts'
import { parseMountLine } from './mountinfo.ts'
import { hasServer, MOUNT_FLAG_BITS, type MountEntry, type Mounts } from './mounts.ts'
import { close, openFd, read } from './node-files.ts'
import { MAX_OPTION_BYTES, overlaySettings } from './overlay-settings.ts'

const { EBUSY } = constants.errno

/** How long an unmount is tried again after EBUSY, and the pause between two tries. */
const BUSY_MS = 500
const LOOK_MS = 10

/** The time limit of an unmount: a disk may have much to write, and callers wait for a minute. */
const UNMOUNT_MS = 30_000

const REACH_MS = 2000

/** The limit of the guest's mount table, and of a container's, which may have any number of mounts. */
const MAX_TABLE_BYTES = { own: 16 * 2 ** 20, other: 64 * 2 ** 20 }

interface MountContext {
  readonly native: Native
  readonly tools: Pick<Tools, 'run'>
  /** Path of vminit's program, for unmounts that may never end. */
  readonly vminit: string
  /** The limit of an unmount; 30 s by default. */
  readonly unmountMs?: number
}

export function linuxMounts(context: MountContext): Mounts {
  const { native } = context
  return {
    async mount(request) {
      const mounted = Buffer.byteLength(request.data) > MAX_OPTION_BYTES ? mountBySettings : mountByOptions
      checkErrno(
        'mount',
        request.target,
        await inStep('mount', request.target, () => mounted(native, request)),
      )
    },

    async unmount(target, { detach = false } = {}) {
      const flags = UMOUNT_NOFOLLOW | (detach ? MNT_DETACH : 0)
      checkErrno('unmount', target, await inStep('mount', target, () => unmount(context, target, flags)))
    },

    async clone(from, to) {
      const result = await native.cloneMount(from.pid, from.path, to.pid, to.path)
      checkErrno('clone', `mount ${from.path} of process ${from.pid} to ${to.path}`, result)
    },

    async pinNamespaces({ ipc, uts, hostname }) {
      checkErrno('pin namespaces', `${ipc}, ${uts}`, await native.pinNamespaces(ipc, uts, hostname))
    },

    async hostnameIn(namespace, hostname = '') {
      return unwrap('hostname of', namespace, await native.hostnameIn(namespace, hostname)).toString()
    },

    list: () => listMounts(context),

    async reach(folder) {
      const reached = context.tools.run([context.vminit, '--reach', folder], { timeoutMs: REACH_MS })
      const { exitCode } = await withTimeout({ startTimer }, REACH_MS, reached, () => unreached(folder))
      checkErrno('reach', folder, -exitCode)
    },

    async isMounted(pid, path) {
      let found = false
      await readLines(`/proc/${pid}/mountinfo`, MAX_TABLE_BYTES.other, (line) => {
        found ||= parseMountLine(line).mountPoint === path
      })
      return found
    },
  }
}

async function listMounts({ native }: Pick<MountContext, 'native'>): Promise<readonly MountEntry[]> {
  const table = await linuxFiles(native).readText('/proc/self/mountinfo', MAX_TABLE_BYTES.own)
  return table.split('\n').slice(0, -1).map(parseMountLine)
}

type MountRequest = Parameters<Mounts['mount']>[0]

function mountByOptions(native: Native, request: MountRequest): Promise<number> {
  const { source, target, type, flags, data, refuseLinks = false } = request
  const bits = flags.reduce((sum, flag) => sum | MOUNT_FLAG_BITS[flag], 0)
  return native.mount(source, target, type, bits, data, refuseLinks)
}

function mountBySettings(native: Native, request: MountRequest): Promise<number> {
  const { source, target, type, refuseLinks = false } = request
  const { settings, attributes } = overlaySettings(request, release())
  return native.mountBySettings(source, target, type, attributes, settings, refuseLinks)
}

const MNT_DETACH = 2
const UMOUNT_NOFOLLOW = 8

/** Retries after EBUSY: a program that was just started has copies of closed descriptors until it executes. */
async function unmount(context: MountContext, target: string, flags: number): Promise<number> {
  // A mount to detach is a second one of a file system that stays mounted, and most containers have several.
  const isLast = (flags & MNT_DETACH) === 0 && (await mayLastForEver(context, target))
  const unmountOnce = isLast
    ? async () => -(await context.tools.run([context.vminit, '--unmount', `${flags}`, target])).exitCode
    : () => context.native.unmount(target, flags)
  const { unmountMs = UNMOUNT_MS } = context
  const givenUpMs = performance.now() + BUSY_MS
  for (;;) {
    const result = await withTimeout({ startTimer }, unmountMs, unmountOnce(), () => late(target, unmountMs))
    if (result !== -EBUSY || performance.now() >= givenUpMs) return result
    await sleep(LOOK_MS)
  }
}

/** Whether a process must unmount it, because the kernel waits for its server and a thread may never return. */
async function mayLastForEver(context: MountContext, target: string): Promise<boolean> {
  const mounts = await listMounts(context)
  const mount = mounts.findLast(({ mountPoint }) => mountPoint === target)
  if (mount === undefined || !hasServer(mount)) return false
  return !mounts.some(
    ({ id, major, minor }) => id !== mount.id && major === mount.major && minor === mount.minor,
  )
}

function unreached(folder: string): AgentError {
  const text = `reach ${folder}: ETIMEDOUT: a server on the way has not answered for ${REACH_MS / 1000} s`
  return new AgentError('DEADLINE_EXCEEDED', text, { errno: 'ETIMEDOUT' })
}

/** The kernel has removed the mount from the table, and continues to unmount it. */
function late(target: string, ms: number): AgentError {
  const text = `unmount ${target}: ETIMEDOUT: its server or disk has not answered for ${ms / 1000} s`
  return new AgentError('DEADLINE_EXCEEDED', text, { errno: 'ETIMEDOUT' })
}

/** Reads a file line by line, in pieces. Throws EFBIG, naming the limit, above `maxBytes`, and the kernel's errors. */
export async function readLines(
  path: string,
  maxBytes: number,
  onLine: (line: string) => void,
): Promise<void> {
  const report = failed('read', path)
  const buffer = Buffer.alloc(PIECE_BYTES)
  // A character of several bytes may be cut by the end of a piece.
  const decoder = new TextDecoder()
  let begun = ''
  let bytes = 0
  const fd = await openFd(path, 'r').catch(report)
  try {
    for (;;) {
      const { bytesRead } = await read(fd, buffer, 0, buffer.length, null).catch(report)
      if (bytesRead === 0) break
      bytes += bytesRead
      if (bytes > maxBytes) throw tooLong(path, maxBytes)
      const lines = (begun + decoder.decode(buffer.subarray(0, bytesRead), { stream: true })).split('\n')
      begun = lines.pop() ?? ''
      for (const line of lines) onLine(line)
    }
  } finally {
    await close(fd)
  }
  if (begun !== '') onLine(begun)
}

const PIECE_BYTES = 64 * 1024
