import { closeSync, constants, fstatSync, openSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { AgentError, errnoOf, messageOf } from '../../base/errors.ts'
import { propertyOf } from '../../base/property-of.ts'
import { isEnding, procStatFields } from '../../os/process/proc-stat.ts'
import { type Address, addressText, parseAddress } from '../connection/address.ts'
import { fileFailure } from '../files/file-failure.ts'
import { isMachineName } from './machine-name.mjs'

/** A running machine of this user. Its entry is the file NAME in the folder of machines. */
export interface Machine extends Runner {
  readonly name: string
  /** Where its agent listens; undefined until the agent has answered once. */
  readonly address: Address | undefined
}

/** The process that runs a machine. Pids are reused, but not together with the same start time. */
export interface Runner {
  readonly pid: number
  /** `starttime` of /proc/PID/stat, in clock ticks since the boot of this host. */
  readonly startTicks: number
}

export type Entry =
  | { readonly kind: 'runs'; readonly machine: Machine }
  /** Its process has ended without removing the file; the next run removes it. */
  | { readonly kind: 'ended'; readonly pid: number }
  /** The file is not an entry of this user's machines. */
  | { readonly kind: 'invalid'; readonly reason: string }

const VERSION = 1
const MAX_ENTRY_BYTES = 4096

export interface RegistryEnvironment {
  readonly MICROVM_REGISTRY?: string | undefined
  readonly XDG_RUNTIME_DIR?: string | undefined
}

/** /run/microvm for root, the folder of the user's session for others. */
export function machinesFolder({ MICROVM_REGISTRY = '', XDG_RUNTIME_DIR = '' }: RegistryEnvironment): string {
  if (MICROVM_REGISTRY !== '') return MICROVM_REGISTRY
  const uid = ownUid()
  if (uid === 0) return '/run/microvm'
  return join(XDG_RUNTIME_DIR === '' ? `/run/user/${uid}` : XDG_RUNTIME_DIR, 'microvm')
}

/** The running machines, sorted by name. Ignores other files. Throws UNAVAILABLE. */
export function runningMachines(folder: string): readonly Machine[] {
  return entryNames(folder).flatMap((name) => {
    const entry = readEntry(folder, name)
    return entry?.kind === 'runs' ? [entry.machine] : []
  })
}

/** The files whose names are machine names, sorted; empty without the folder. Throws UNAVAILABLE. */
export function entryNames(folder: string): readonly string[] {
  try {
    return readdirSync(folder).filter(isMachineName).toSorted()
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return []
    throw new AgentError('UNAVAILABLE', `machines in ${fileFailure(folder, error)}`, { cause: error })
  }
}

export function readEntry(folder: string, name: string): Entry | undefined {
  try {
    const machine = parseEntry(name, readOwnFile(join(folder, name)))
    return runs(machine) ? { kind: 'runs', machine } : { kind: 'ended', pid: machine.pid }
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return undefined
    return { kind: 'invalid', reason: errnoOf(error) === 'ELOOP' ? 'a symbolic link' : messageOf(error) }
  }
}

export function entryText({ address, pid, startTicks }: Omit<Machine, 'name'>): string {
  const text = address === undefined ? undefined : addressText(address)
  return `${JSON.stringify({ version: VERSION, pid, startTicks, address: text })}\n`
}

export function ownRunner(): Runner {
  return { pid: process.pid, startTicks: startTicksOf(procStat(process.pid)) }
}

/** Reads a small regular file of this user, without following links or waiting for a fifo. */
function readOwnFile(path: string): string {
  const fd = openSync(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK)
  try {
    const status = fstatSync(fd)
    if (!status.isFile()) throw new Error('not a regular file')
    if (status.uid !== ownUid()) throw new Error(`owned by user ${status.uid}`)
    if (status.size > MAX_ENTRY_BYTES) throw new Error(`${status.size} bytes`)
    return readFileSync(fd, 'utf8')
  } finally {
    closeSync(fd)
  }
}

function parseEntry(name: string, text: string): Machine {
  const value = jsonOf(text)
  const version = propertyOf(value, 'version')
  if (version === undefined) throw new Error('no entry of a machine')
  if (version !== VERSION) throw new Error(`version ${JSON.stringify(version)}, want ${VERSION}`)
  const [pid, startTicks, address] = ['pid', 'startTicks', 'address'].map((key) => propertyOf(value, key))
  if (!isCount(pid) || !isCount(startTicks)) throw new Error('no pid and start time')
  if (address !== undefined && typeof address !== 'string') throw new Error('address: not a text')
  return { name, pid, startTicks, address: address === undefined ? undefined : parseAddress(address) }
}

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    // The file is truncated or comes from another program.
    return undefined
  }
}

function isCount(value: unknown): value is number {
  return Number.isSafeInteger(value) && Number(value) > 0
}

/** Whether the machine's process is alive; a zombie is not. */
function runs({ pid, startTicks }: Runner): boolean {
  const stat = procStat(pid)
  return startTicksOf(stat) === startTicks && !isEnding(stat)
}

function procStat(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/stat`, 'utf8')
  } catch {
    // ENOENT or ESRCH: no process has the pid.
    return ''
  }
}

/** `starttime`, field 22 of proc(5). */
function startTicksOf(stat: string): number {
  return Number(procStatFields(stat)[19])
}

export function ownUid(): number {
  return process.geteuid?.() ?? 0
}
