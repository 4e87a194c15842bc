import { constants, type Stats } from 'node:fs'
import { open, stat } from 'node:fs/promises'
import { AgentError } from '../../../base/errors.ts'
import type { Backend, Specification } from '../../../gen/microvm/instance/v1/instance.ts'
import { pathOf } from '../../spec/component-path.ts'
import { filtered } from '../filters/nft.ts'
import { withoutTable } from '../filters/tap-rules.ts'
import type { PlannedStep, StepContext } from './steps.ts'

/**
 * Throws FAILED_PRECONDITION naming the field and the path of what is not of the kind that QEMU and its daemons want. They
 * would open it all the same: a FIFO makes them wait for a writer. What is missing they tell themselves.
 */
export async function checkFiles({ board, backends }: Specification): Promise<void> {
  const { kernel = '', initrd = '', vmlinux = '' } = board ?? {}
  const checks = [
    checkKernel('board.kernel', kernel),
    check('board.initrd', initrd, 'file'),
    check('board.vmlinux', vmlinux, 'file'),
    ...Object.entries(backends).map(([key, backend]) => checkBackendFile(key, backend)),
  ]
  for (const each of await Promise.allSettled(checks)) if (each.status === 'rejected') throw each.reason
}

export async function checkBackendFile(key: string, backend: Backend): Promise<void> {
  const { file, content, folder, virtiofsd, vhostUser } = backend
  const at = (...fields: string[]) => pathOf('backends', key, ...fields)
  if (file && file.host === '') await check(at('file', 'path'), file.path, 'file', 'block device')
  if (content) await check(at('content', 'path'), content.path, 'file')
  if (folder) await check(at('folder', 'path'), folder.path, 'folder')
  if (virtiofsd) await check(at('virtiofsd', 'path'), virtiofsd.path, 'folder')
  if (vhostUser) await check(at('vhostUser', 'socket'), vhostUser.socket, 'socket')
}

const KINDS = {
  file: (status: Stats) => status.isFile(),
  folder: (status: Stats) => status.isDirectory(),
  socket: (status: Stats) => status.isSocket(),
  FIFO: (status: Stats) => status.isFIFO(),
  'block device': (status: Stats) => status.isBlockDevice(),
  'character device': (status: Stats) => status.isCharacterDevice(),
} as const

type Kind = keyof typeof KINDS

/** What is there, of a kind that is wanted. Nothing is opened, for some devices act on that. */
async function check(field: string, path: string, ...wanted: readonly Kind[]): Promise<Stats | undefined> {
  if (path === '') return undefined
  const status = await stat(path).catch(() => undefined)
  if (status === undefined) return undefined
  const kinds = Object.entries(KINDS).flatMap(([kind, is]) => (is(status) ? [kind] : []))
  if (wanted.some((kind) => kinds.includes(kind))) return status
  throw refused(field, `${path}: a ${kinds.join()}, want a ${wanted.join(' or a ')}`)
}

/** QEMU looks for the header of Multiboot in so many bytes, and for the others further in front. */
const HEAD_BYTES = 8192

/** Kernels that have been read, until they change: most machines of a host begin with the same few. */
const kernels = new Set<string>()
const MAX_KERNELS = 64

async function checkKernel(field: string, path: string): Promise<void> {
  const status = await check(field, path, 'file')
  if (status === undefined) return
  const identity = [status.dev, status.ino, status.size, status.ctimeMs].join()
  if (kernels.has(identity)) return
  // Not to wait for what may have come into its place.
  await using file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOCTTY).catch(
    () => undefined,
  )
  if (file === undefined) return
  const { buffer, bytesRead } = await file.read(Buffer.alloc(HEAD_BYTES), 0, HEAD_BYTES, 0)
  if (!isKernel(buffer.subarray(0, bytesRead))) throw refused(field, `${path}: not a kernel, want a bzImage`)
  if (kernels.size >= MAX_KERNELS) kernels.clear()
  kernels.add(identity)
}

/** Linux (Documentation/arch/x86/boot.rst), ELF with PVH, and Multiboot, as QEMU loads them. */
function isKernel(head: Buffer): boolean {
  if (head.toString('latin1', 0x202, 0x206) === 'HdrS' || head.toString('latin1', 1, 4) === 'ELF') return true
  for (let at = 0; at + 4 <= head.length; at += 4) if (head.readUInt32LE(at) === MULTIBOOT_MAGIC) return true
  return false
}

const MULTIBOOT_MAGIC = 0x1bad_b002

function refused(field: string, text: string): AgentError {
  return new AgentError('FAILED_PRECONDITION', `${field}: ${text}`)
}

/**
 * Throws FAILED_PRECONDITION when an interface exists that QEMU is to make: it would be another's; and where taps cannot be
 * filtered.
 */
export async function checkSteps(
  { links, filters }: StepContext,
  planned: readonly PlannedStep[],
): Promise<void> {
  for (const { step, words, filter } of planned) {
    const [key, name = ''] = words
    if (step === 'tap' && links.exists(name))
      throw new AgentError('FAILED_PRECONDITION', `backends.${key}: interface ${name} exists already`)
    if (step === 'filter' && filter !== undefined)
      await filtered(filter.path, filters.check(withoutTable(name)))
  }
}
