import { createHash } from 'node:crypto'
import { constants } from 'node:fs'
import { chown, lstat, mkdir, open, readdir, realpath, rm } from 'node:fs/promises'
import { createServer } from 'node:net'
import { dirname, join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { abortable, neverAborted } from '../../../base/abort.ts'
import { AgentError, messageOf } from '../../../base/errors.ts'
import type { Logger } from '../../../base/log.ts'
import { isWithin } from '../../../base/paths.ts'
import { SerialQueue } from '../../../base/serial-queue.ts'
import type { GetVmRequest, Vm } from '../../../gen/microvm/controller/v1/controller.ts'
import { VolumeRecord } from '../../../gen/microvm/instance/v1/records.ts'
import type { HypervisorID } from '../../../gen/vm.ts'
import type { Clock } from '../../../os/clock.ts'
import { O_PATH } from '../../../os/open-flags.ts'
import { isFixedBelow } from '../../catalogue/fixed-path.ts'
import { endRunning } from '../holder/ask-holder.ts'
import type { Holder } from '../holder/holder.ts'
import type { InstanceLimits } from '../limits.ts'
import type { Registry } from '../registry/registry.ts'
import { sizeOfBase } from '../snapshots/check-layers.ts'
import { type HostIdentity, nameOfExport, startVolumeDaemon } from './volume-daemon.ts'

export interface VolumesHost {
  /** Of this host, among those of its controllers. */
  readonly id: string
  /** Where other hosts reach this one. */
  readonly address: string
  /** Where its servers listen. */
  readonly listen: string
  readonly identity: HostIdentity
  /** Those with files for machines of other hosts, and the hosts that may have them. */
  readonly folders: OfferedFolders
  /** Rejects with NOT_FOUND for a VM that is not there. */
  readonly getVm: (request: GetVmRequest) => Promise<Vm>
  readonly stateFolder: string
  /** Of qemu-storage-daemon. */
  readonly program: string
  readonly registry: Pick<Registry, 'commit' | 'load'>
  readonly holders: {
    start(folder: string, cgroups: readonly string[]): Promise<Holder>
    find(folder: string): Promise<Holder | undefined>
    kill(folder: string): Promise<void>
  }
  readonly clock: Pick<Clock, 'sleep' | 'startTimer'>
  readonly limits: InstanceLimits
  readonly log: Logger
}

/** Hosts, by the path of a folder. */
export type OfferedFolders = Readonly<Record<string, readonly string[]>>

/** Where the writer of an epoch finds its volume. */
export interface Reach {
  readonly address: string
  readonly port: number
  readonly name: string
}

/** What serves a volume here: that of another host, or in its place nothing but zeros of its size. */
export interface Server<Process> {
  /** The host that has it, when that is another one. */
  readonly bridge?: { readonly host: string; readonly to: (reach: Reach) => Process }
  readonly standIn: (sizeBytes: number) => Process
}

/** A writer of this host, by a socket that its user may open; or the host of another. */
export type Writer = { readonly socket: string; readonly uid: number } | { readonly peer: string }

/** In the registry's table of settings. */
const ROWS = 'volume/'
/** Before a server that has ended is started again; the pause doubles. */
const PAUSE_MS = { first: 100, longest: 30_000 } as const
/** How often the controllers are asked whether there are still VMs of the volumes. */
const SWEEP_MS = 600_000

/**
 * The files of this host that are disks of machines with LM_FULL_LEASES, here or on other hosts. Each is served by a
 * qemu-storage-daemon to one writer, which the controller names. Another writer gets another server, once that of the one before has
 * ended with all that it was doing.
 */
export class Volumes {
  readonly #host: VolumesHost
  readonly #closed = new AbortController()
  /** One change of a volume at a time, and how many there are. */
  readonly #queues = new Map<string, { readonly queue: SerialQueue; changes: number }>()
  /** Connections to those that serve. */
  readonly #holders = new Map<string, Holder>()
  readonly #served = new Map<string, VolumeRecord>()
  #sweep: NodeJS.Timeout | undefined

  constructor(host: VolumesHost) {
    this.#host = host
  }

  get identity(): HostIdentity {
    return this.#host.identity
  }

  get id(): string {
    return this.#host.id
  }

  /** Goes on with those that an earlier daemon has served. */
  async open(): Promise<void> {
    const { registry } = this.#host
    for (const [key, row] of await registry.load('settings'))
      if (key.startsWith(ROWS)) this.#served.set(key, VolumeRecord.decode(row))
    await this.#endUnknown()
    for (const [row, record] of this.#served)
      void this.#change(row, async () => this.#keep(row, record)).catch((error) => this.#warn(record, error))
    this.#sweep = setInterval(() => this.#endForgotten(), SWEEP_MS).unref()
    this.#endForgotten()
  }

  /**
   * Ends the writers of earlier epochs, whose requests fail from then on, and lets `us` alone write. Rejects with FAILED_PRECONDITION
   * unless `us` runs the VM, says the controller, and this host has the volume; `signal` ends the waits before that is known.
   */
  async fence(us: HypervisorID, key: string, writer: Writer, signal: AbortSignal): Promise<Reach> {
    const row = rowOf(us, key)
    const fence = async () => {
      const record = await abortable(this.#recordOf(us, key, writer), signal)
      this.#served.set(row, record)
      try {
        await this.#commit(row, record)
        await this.#end(row)
        await this.#start(row, record)
      } catch (error) {
        await this.#forget(row).catch((failure) => this.#warn(record, failure))
        throw error
      }
      return { address: this.#host.address, port: record.port, name: nameOfExport(record) }
    }
    return await this.#change(row, fence, signal)
  }

  /**
   * The size of a volume in bytes. Rejects with FAILED_PRECONDITION where {@link fence} would refuse it, but for who runs the VM:
   * `us` is to.
   */
  async look(us: HypervisorID, key: string, writer: Writer): Promise<number> {
    const { path } = await this.#placeOf(us, key, writer)
    return await sizeOfBase({ base: path, qcow2Base: false, secret: '' })
  }

  /** Whether a writer of this host has a server at the socket. */
  serves(socket: string): boolean {
    return [...this.#served.values()].some((record) => record.socket === socket)
  }

  /** Ends the server that a writer of this host has at the socket, if there is one. */
  async release(socket: string): Promise<void> {
    // Those of other hosts have no socket.
    if (socket === '') return
    for (const [row, record] of this.#served)
      if (record.socket === socket)
        await this.#change(row, async () => {
          if (this.#served.get(row) === record) await this.#forget(row)
        })
  }

  /** The servers go on. */
  close(): void {
    clearInterval(this.#sweep)
    this.#closed.abort(new AgentError('CANCELLED', 'the daemon stops'))
    for (const holder of this.#holders.values()) holder.disconnect()
  }

  async #change<T>(row: string, change: () => Promise<T>, signal = neverAborted): Promise<T> {
    const own = this.#queues.get(row) ?? { queue: new SerialQueue(), changes: 0 }
    this.#queues.set(row, own)
    own.changes += 1
    try {
      return await own.queue.run(change, signal)
    } finally {
      own.changes -= 1
      if (own.changes === 0) this.#queues.delete(row)
    }
  }

  async #recordOf(us: HypervisorID, key: string, writer: Writer): Promise<VolumeRecord> {
    const { authoritative, epoch, path } = await this.#placeOf(us, key, writer)
    if (authoritative?.podName !== us.podName || authoritative.runId !== us.runId)
      throw refused(us, key, `${us.podName.slice(0, 128)} does not run the machine, says the controller`)
    const before = this.#served.get(rowOf(us, key))
    if (before !== undefined && before.epoch > epoch)
      throw refused(us, key, `epoch ${before.epoch} has it, want no earlier one than that`)
    const record = { ...VolumeRecord.create(), ...{ writer: us, key, path, epoch } }
    if ('socket' in writer) return { ...record, socket: writer.socket, uid: writer.uid }
    return { ...record, peer: writer.peer, port: await freePort(this.#host.listen) }
  }

  /** What the controller has of the volume, and who runs its VM. */
  async #placeOf({ namespace, vmName }: HypervisorID, key: string, writer: Writer) {
    const { getVm, id } = this.#host
    const { authoritative, volumes } = await getVm({ namespace, name: vmName })
    const volume = volumes.find((each) => each.key === key && each.host === id)
    if (volume === undefined) throw refused({ vmName }, key, `not on host ${id}, says the controller`)
    const { epoch, path } = volume
    if ('peer' in writer)
      await this.#checkOffered({ path, peer: writer.peer }).catch((error) => {
        throw refused({ vmName }, key, messageOf(error))
      })
    return { authoritative, epoch, path }
  }

  /** Throws when the path leads elsewhere than when it was offered. */
  async #checkOffered({ path, peer }: Pick<VolumeRecord, 'path' | 'peer'>): Promise<void> {
    const { folders, id } = this.#host
    const refused = (text: string) => new AgentError('FAILED_PRECONDITION', `${path}: ${text}`)
    const found = await realpath(path).catch(() => undefined)
    const offers = Object.entries(folders).filter(([folder]) => found === path && isWithin(path, folder))
    if (offers.length === 0)
      throw refused(`not below a folder of host.volumes in the configuration of host ${id}`)
    if (!offers.some(([, hosts]) => hosts.includes(peer)))
      throw refused(`host.volumes in the configuration of host ${id} does not name host ${peer} for it`)
    if (!(await isFixedBelow(dirname(path), await lstat(path))))
      throw refused('others than the administrator can replace it')
  }

  async #start(row: string, record: VolumeRecord): Promise<void> {
    const { holders, identity, limits, listen, program } = this.#host
    if (record.peer !== '') await this.#checkOffered(record)
    const folder = this.#folderOf(row)
    await mkdir(folder, { mode: 0o700, recursive: true })
    const holder = await holders.start(folder, [])
    const place = { folder, program, listen, identity, withinMs: limits.daemonMs }
    try {
      await startVolumeDaemon(holder, record, place)
      if (record.socket !== '' && record.uid !== 0) await giveSocket(record.socket, record.uid)
    } catch (error) {
      await this.#end(row)
      throw error
    }
    this.#follow(row, record, holder)
  }

  /** Takes in a server, or starts it again where it has ended. */
  async #keep(row: string, record: VolumeRecord): Promise<void> {
    if (this.#served.get(row) !== record) return
    const isOffered =
      record.peer === '' ||
      (await this.#checkOffered(record).then(
        () => true,
        () => false,
      ))
    const holder = await this.#host.holders.find(this.#folderOf(row)).catch(() => undefined)
    const isThere = (await holder?.children())?.some(({ exit }) => exit === undefined)
    if (holder !== undefined && isThere && isOffered) return this.#follow(row, record, holder)
    await this.#end(row)
    await this.#start(row, record)
  }

  /** Starts the server again when it ends by itself: its writer waits for that. */
  #follow(row: string, record: VolumeRecord, holder: Holder): void {
    const { log } = this.#host
    if (this.#closed.signal.aborted) {
      holder.disconnect()
      return
    }
    this.#holders.set(row, holder)
    const again = async () => {
      for (let pauseMs: number = PAUSE_MS.first; this.#isServed(row, record); ) {
        try {
          return await this.#change(row, () => this.#keep(row, record))
        } catch (error) {
          this.#warn(record, error)
        }
        await delay(pauseMs, undefined, { ref: false })
        pauseMs = Math.min(pauseMs * 2, PAUSE_MS.longest)
      }
    }
    const ended = Promise.withResolvers<void>()
    holder.onExit(() => ended.resolve())
    void holder.ended.then(ended.resolve)
    // It may have ended before its end was listened for.
    const look = holder.children().then((children) => {
      if (children.every(({ exit }) => exit !== undefined)) ended.resolve()
    })
    // A holder that does not answer ends.
    look.catch(() => {})
    void ended.promise.then(() => {
      if (!this.#isServed(row, record)) return
      log.warn('server of a volume has ended', { volume: record.path })
      return again()
    })
  }

  #isServed(row: string, record: VolumeRecord): boolean {
    return this.#served.get(row) === record && !this.#closed.signal.aborted
  }

  async #end(row: string): Promise<void> {
    const known = this.#holders.get(row)
    this.#holders.delete(row)
    await this.#endIn(this.#folderOf(row))
    known?.disconnect()
  }

  /** Kills a server. Resolves once it and all that it was doing have ended. */
  async #endIn(folder: string): Promise<void> {
    const { clock, holders, limits } = this.#host
    const holder = await holders.find(folder).catch(() => holders.kill(folder))
    if (holder) await endRunning({ clock, limits }, holder)
    await rm(join(folder, 'holder.sock'), { force: true })
  }

  async #forget(row: string): Promise<void> {
    this.#served.delete(row)
    await this.#end(row)
    await rm(this.#folderOf(row), { recursive: true, force: true })
    await this.#commit(row, undefined)
  }

  async #commit(key: string, record: VolumeRecord | undefined): Promise<void> {
    const payload = record && VolumeRecord.encode(record).finish()
    await this.#host.registry.commit([{ table: 'settings', key, payload }], { frees: payload === undefined })
  }

  /** Ends the servers of VMs that there are no more. */
  #endForgotten(): void {
    for (const [row, record] of this.#served) {
      const { namespace = '', vmName: name = '' } = record.writer ?? {}
      const look = this.#host.getVm({ namespace, name }).catch((error) => {
        if (!(error instanceof AgentError) || error.code !== 'NOT_FOUND') throw error
        return this.#change(row, async () => {
          if (this.#isServed(row, record)) await this.#forget(row)
        })
      })
      look.catch((error) => this.#warn(record, error))
    }
  }

  /** Ends those that a registry which was made anew has lost. */
  async #endUnknown(): Promise<void> {
    const { log, stateFolder } = this.#host
    const all = await readdir(join(stateFolder, 'volumes')).catch(() => [])
    const known = [...this.#served.keys()].map((row) => this.#folderOf(row))
    for (const folder of all
      .map((name) => join(stateFolder, 'volumes', name))
      .filter((each) => !known.includes(each)))
      await this.#endIn(folder)
        .then(() => rm(folder, { recursive: true, force: true }))
        .catch((error) => log.warn('volume not ended', { folder, error: messageOf(error) }))
  }

  #folderOf(row: string): string {
    const name = createHash('sha256').update(row).digest('hex').slice(0, 16)
    return join(this.#host.stateFolder, 'volumes', name)
  }

  #warn({ path }: VolumeRecord, error: unknown): void {
    if (!this.#closed.signal.aborted) this.#host.log.warn('volume', { volume: path, error: messageOf(error) })
  }
}

/** The user may have put another file in its place, such as a link to one of root's. */
async function giveSocket(path: string, uid: number): Promise<void> {
  const file = await open(path, O_PATH | constants.O_NOFOLLOW)
  try {
    const status = await file.stat()
    if (!status.isSocket() || status.nlink !== 1)
      throw new AgentError('FAILED_PRECONDITION', `${path}: want the socket that was made there`)
    await chown(`/proc/self/fd/${file.fd}`, uid, uid)
  } finally {
    await file.close()
  }
}

function refused({ vmName }: Pick<HypervisorID, 'vmName'>, key: string, text: string): AgentError {
  return new AgentError(
    'FAILED_PRECONDITION',
    `volume ${key.slice(0, 128)} of ${vmName.slice(0, 128)}: ${text}`,
  )
}

function rowOf({ namespace, vmName }: Pick<HypervisorID, 'namespace' | 'vmName'>, key: string): string {
  return `${ROWS}${namespace}/${vmName}/${key}`
}

/** Another process may take it before the server does, whose start fails then. */
async function freePort(host: string): Promise<number> {
  const server = createServer()
  const listening = Promise.withResolvers<void>()
  server.once('listening', listening.resolve).once('error', listening.reject)
  server.listen({ host, port: 0, exclusive: true })
  try {
    await listening.promise
    const address = server.address()
    return typeof address === 'object' ? (address?.port ?? 0) : 0
  } finally {
    server.close()
  }
}
