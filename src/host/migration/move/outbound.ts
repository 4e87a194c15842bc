import { abortable, neverAborted, withTimeout } from '../../../base/abort.ts'
import { AgentError, messageOf } from '../../../base/errors.ts'
import type { GrpcConnection, StreamCall } from '../../../client/connection/grpc-connection.ts'
import { HandoverDefinition, MoveRequest, MoveResponse } from '../../../gen/microvm/instance/v1/handover.ts'
import { InstanceServiceDefinition, type Operation } from '../../../gen/microvm/instance/v1/instance.ts'
import {
  EnsureMigrationTargetResponse_Action as Action,
  EnsureMigrationTargetRequest,
  type HypervisorID,
} from '../../../gen/vm.ts'
import { clientFor } from '../../../rpc/client.ts'
import { specificationOf } from '../../instance/devices/plug.ts'
import { withoutPresent } from '../../instance/documents/plug-features.ts'
import { readRing } from '../../instance/holder/holder-files.ts'
import { withoutVolumes, withVolumeHosts } from '../../instance/leases/check-lease.ts'
import type { Migrating } from '../../instance/moves.ts'
import type { BulkEndpoint, BulkProgress } from '../bulk/bulk.ts'
import { type Outgoing, openOutgoing } from '../bulk/outgoing.ts'
import { detach } from '../guest.ts'
import type { OutsideFile } from '../manifest.ts'
import { drainedRings } from '../saving/saved-files.ts'
import type { Saving } from '../saving/saving.ts'
import { noteEnded } from '../saving/steps.ts'
import { stateBytes } from '../state-file.ts'
import { announce, filesOf, namedCpu, startMigration } from './ask-target.ts'
import { layersLeft } from './disks-along.ts'
import { sendContent } from './frames.ts'
import { HANDOVER_VERSION, type MoveHost, refused } from './move-host.ts'
import type { Agreed } from './protocol.ts'
import { markDisks, unmarkDisks } from './shared-disks.ts'

/** The way of one machine to another host, step by step. */
export type Outbound = Pick<OutboundMove, Extract<keyof OutboundMove, string>>

interface Parts {
  readonly host: MoveHost
  readonly saving: Saving
  readonly us: HypervisorID
  readonly toHost: string
  readonly how: Migrating
  readonly speed: Speed
}

/** How fast the last move from this host was. */
export interface Speed {
  bytesPerSecond: number
}

/** How long a guest may take until it is ready there; its steps are told by its timeline. */
const DONE_MS = 130_000
/** Otherwise the target waits for its own time. */
const GIVE_UP_MS = 5000

export class OutboundMove {
  readonly #parts: Parts
  #target = { host: '', endpoint: '' }
  #connection: GrpcConnection | undefined
  #call: StreamCall | undefined
  /** Whether the target has told of its QEMU, or has refused the machine. */
  #hasTold = false
  #answers: AsyncGenerator<MoveResponse, void> | undefined
  #next: Promise<IteratorResult<MoveResponse, void>> | undefined
  /** Fires when the target answers no more: QEMU may wait for it then. */
  readonly #lost = new AbortController()
  #bulk: Outgoing | undefined
  #files: readonly OutsideFile[] = []
  #agreed: Agreed = { disksEndpoint: '', disks: [] }
  /** The step that copies now. */
  #copying: 'disks' | 'memory' | undefined

  constructor(parts: Parts) {
    this.#parts = parts
    parts.host.closing.addEventListener('abort', this.#cut, { once: true })
  }

  /** Where the machine goes. */
  get target(): { readonly host: string; readonly endpoint: string } {
    return this.#target
  }

  /** The files of the disks that go along; what is below layers may be below those of other machines, too. */
  get along(): readonly string[] {
    const { layers } = this.#parts.saving.instance.record
    return this.#agreed.disks.flatMap(({ key, path }) =>
      layers.some(({ backend }) => backend === key) ? [] : [path],
    )
  }

  get #signal(): AbortSignal {
    const { host, how, saving } = this.#parts
    return AbortSignal.any([how.signal, saving.instance.ending, host.closing, this.#lost.signal])
  }

  /** Asks the controller. Throws FAILED_PRECONDITION with its reason when the machine cannot move. */
  async findTarget(): Promise<void> {
    const { host, saving, toHost, us } = this.#parts
    const { controller } = host
    if (toHost === host.id) throw refused(`to_host: ${toHost} is this host`)
    await announce(saving.instance, { host, us, facts: saving.host })
    const request = EnsureMigrationTargetRequest.fromPartial({ us, toHost })
    const asked = controller.ensureMigrationTarget(request)
    const answer = await abortable(asked, this.#signal).catch((error) => {
      // The target that the controller finds all the same. A later move may need it, and ends before it is given up.
      void asked
        .then(async ({ host: late, targetEndpoint }) => {
          this.#target = { host: late, endpoint: targetEndpoint }
          await saving.instance.change(() => this.#giveUp(), neverAborted)
        })
        .catch(() => {})
      throw error
    })
    const { action, host: target, reason, targetEndpoint: endpoint } = answer
    if (action !== Action.ACTION_LIVE_MIGRATE)
      throw refused(`no live migration: ${reason || 'no reason given'}`)
    this.#target = { host: target, endpoint }
  }

  /** Agrees with the target on QEMU's own protocol, and on the disks that are copied. */
  async negotiate(): Promise<void> {
    const { host, saving, us } = this.#parts
    this.#files = await filesOf(saving.instance, this.#signal)
    this.#connection = await host.dial(this.#target.endpoint, this.#target.host, this.#signal)
    const question = { connection: this.#connection, files: this.#files, name: this.#target.host, us }
    this.#agreed = await startMigration(saving.instance, question, {
      timeoutMs: host.settings.readyMs,
      signal: this.#signal,
    })
    const [left] = layersLeft(saving.instance.record, this.#agreed.disks)
    if (left !== undefined) throw refused(left)
  }

  /** Sends the plan, and waits until the QEMU of the target waits. */
  async begin(): Promise<void> {
    const { host, saving, us } = this.#parts
    const { instance } = saving
    const { record } = instance
    const connection = this.#connection
    if (connection === undefined) throw new AgentError('INTERNAL', 'no connection to the target')
    this.#call = connection.stream(HandoverDefinition.fullName, HandoverDefinition.methods.move.name)
    this.#answers = decoded(this.#call)
    this.#awaitNext()
    const files = this.#files.map(({ field, backend, path, digest, sizeBytes }) => ({
      ...{ field, backend, path, digest },
      sizeBytes: BigInt(sizeBytes),
    }))
    const { acceleration, qemu } = saving.host
    const cpu = namedCpu(record) === undefined ? saving.host.cpu : ''
    const { generationId } = record
    const plan = { version: HANDOVER_VERSION, us, qemu, acceleration, cpu, files, generationId }
    const specification = withoutVolumes(specificationOf(instance), record)
    await markDisks(specification, us)
    let ready: MoveResponse['ready']
    try {
      await this.#send(MoveRequest.fromPartial({ plan }))
      await sendContent((message) => this.#send(message), this.#envelope(withoutLeaving(saving)))
      ready = (await this.#answer(host.settings.readyMs, this.#signal)).ready
    } catch (error) {
      this.#hasTold = error instanceof AgentError && REFUSALS.some((code) => code === error.code)
      throw error
    } finally {
      await unmarkDisks(specification, us)
    }
    this.#hasTold = ready !== undefined
    const memory = endpointOf(ready?.memoryEndpoint ?? '')
    if (memory === undefined) throw refused(`host ${this.#target.host}: is not ready for memory`)
    const { disks, disksEndpoint } = this.#agreed
    const qemuHere = { ...instance.context, qmp: instance.machine().qmp, signal: instance.ending }
    this.#bulk = await openOutgoing(qemuHere, {
      disks,
      endpoints: { disks: endpointOf(disksEndpoint), memory },
      tls: { identity: host.identity, peer: this.#target.host },
      settings: host.settings.bulk,
      wasRunning: saving.wasRunning,
      signal: this.#signal,
      onProgress: (progress) => this.#tell(progress),
    })
  }

  async copyDisks(): Promise<void> {
    const bytes = this.#agreed.disks.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0)
    await this.#copied('disks', bytes, () => this.#outgoing.copyDisks())
  }

  /** Brings the streams of the guest to a stop. */
  async detach(saving: Saving): Promise<void> {
    saving.guest = await detach(saving.instance, (ports) => noteEnded(saving.instance, ports))
  }

  /** Afterwards the guest stands still. */
  async sendMemory(): Promise<void> {
    const { saving } = this.#parts
    const { words } = saving.instance.recorded.steps.find(({ step }) => step === 'replug') ?? {}
    saving.unplugged = words?.[1] ?? ''
    const { board } = specificationOf(saving.instance)
    const bytes = Number(board?.memoryMib ?? 0n) * 2 ** 20
    const begun = performance.now()
    await this.#copied('memory', bytes, async () => {
      saving.stoppedAt = await this.#outgoing.sendMemory()
    })
    this.#parts.speed.bytesPerSecond = (bytes * 1000) / Math.max(1, performance.now() - begun)
    await this.#outgoing.endDisks()
  }

  /** Tells how far the step is, and that it has copied all. */
  async #copied(step: 'disks' | 'memory', bytes: number, work: () => Promise<void>): Promise<void> {
    if (bytes === 0) return await work()
    this.#copying = step
    try {
      await work()
    } finally {
      this.#copying = undefined
    }
    this.#parts.how.tell({ step, doneBytes: BigInt(bytes), totalBytes: BigInt(bytes) })
  }

  #tell(progress: BulkProgress): void {
    const { tell } = this.#parts.how
    const step = 'disks' in progress ? 'disks' : 'memory'
    if (step !== this.#copying) return
    const [done, total] =
      'disks' in progress
        ? [progress.disks.copiedBytes, progress.disks.totalBytes]
        : [progress.memory.totalBytes - progress.memory.remainingBytes, progress.memory.totalBytes]
    tell({ step, doneBytes: BigInt(done), totalBytes: BigInt(total) })
  }

  /** Sends what this host's side knows, and the rings. */
  async sendState(): Promise<void> {
    const { saving } = this.#parts
    const { instance } = saving
    const { recorded, streams } = instance
    saving.known = { record: recorded.record, steps: recorded.steps, streams: [...streams.values()] }
    saving.rings = (await drainedRings(instance)).filter(({ number }) => number === 0 || streams.has(number))
    const send = (message: MoveRequest) => this.#send(message)
    await sendContent(send, this.#envelope())
    for (const { isClosed: closed, number } of saving.rings) {
      const { bytes, first } = await readRing(instance.context.folder, number)
      await sendContent(send, bytes, { number, first, closed })
    }
  }

  /** The target may become authoritative from here on. */
  async endHandover(): Promise<void> {
    const { saving } = this.#parts
    const { hasAgent, id, instance, known, rings, unplugged, wasRunning: running } = saving
    const { detachedMs = 0, stoppedMs = 0 } = instance.recorded.timeline?.since ?? {}
    const streams = known.streams.map(({ port, container, exec, stream }) => ({
      ...{ port, container, exec, stream },
      live: hasAgent && rings.some(({ isClosed, number }) => number === port && !isClosed),
    }))
    const times = { stoppedMs: BigInt(stoppedMs), detachedMs: BigInt(detachedMs) }
    const plug = Buffer.from(unplugged, 'base64')
    const end = { running, hasAgent, unplugged: plug, streams, ...times, id, bootId: known.record.bootId }
    await this.#send(MoveRequest.fromPartial({ end }))
    this.#call?.end()
    await this.#outgoing.endMemory()
  }

  /** Waits until the target says that the machine runs there. */
  async runs(): Promise<void> {
    const { host, saving } = this.#parts
    const { runs } = await this.#answer(host.settings.runsMs, saving.instance.ending)
    if (runs === undefined)
      throw new AgentError('INTERNAL', `host ${this.#target.host}: does not say that it runs`)
    this.#outgoing.finish()
  }

  /** The timeline of the target, once its guest is ready; undefined when that is not told. */
  async done(): Promise<Operation | undefined> {
    return await this.#answer(DONE_MS, this.#parts.host.closing).then(
      ({ done }) => done?.operation,
      () => undefined,
    )
  }

  /** Cuts the connection to the target, which undoes all then unless the machine was handed over. */
  async close(): Promise<void> {
    this.#cut()
    // Otherwise it may not have heard of the handover, with which it would end.
    if (!this.#hasTold) await this.#giveUp()
  }

  readonly #cut = () => {
    this.#parts.host.closing.removeEventListener('abort', this.#cut)
    this.#call?.cancel()
    this.#connection?.close()
  }

  /** Takes at most {@link GIVE_UP_MS} for each of two steps. */
  async #giveUp(): Promise<void> {
    if (this.#target.host === '') return
    await this.#removeTarget().catch((error) =>
      this.#parts.saving.instance.context.log.debug('target not told', { error: messageOf(error) }),
    )
  }

  async #removeTarget(): Promise<void> {
    const { host, us } = this.#parts
    const { endpoint, host: name } = this.#target
    const connection = await host.dial(endpoint, name, AbortSignal.timeout(GIVE_UP_MS))
    try {
      const { remove } = clientFor(InstanceServiceDefinition, connection)
      await remove({ key: us.vmName }, { timeoutMs: GIVE_UP_MS })
    } finally {
      connection.close()
    }
  }

  /** Takes back what QEMU has of the move, and lets the guest go on as it was. */
  async endBulk(): Promise<void> {
    const bulk = this.#bulk
    this.#bulk = undefined
    await bulk?.close()
  }

  get #outgoing(): Outgoing {
    if (this.#bulk !== undefined) return this.#bulk
    throw new AgentError('INTERNAL', 'the target is not ready')
  }

  async #send(message: MoveRequest): Promise<void> {
    const { context } = this.#parts.saving.instance
    const { stallMs } = this.#parts.host.settings.bulk
    const sent = this.#call?.send(MoveRequest.encode(message).finish()) ?? Promise.resolve()
    const late = () =>
      new AgentError('DEADLINE_EXCEEDED', `host ${this.#target.host}: takes nothing in ${stallMs} ms`)
    await abortable(withTimeout(context.clock, stallMs, sent, late), this.#signal)
  }

  async #answer(ms: number, signal: AbortSignal): Promise<MoveResponse> {
    const { clock } = this.#parts.saving.instance.context
    const late = () => new AgentError('DEADLINE_EXCEEDED', `host ${this.#target.host}: no answer in ${ms} ms`)
    const next = this.#next ?? Promise.reject(new AgentError('INTERNAL', 'no handover'))
    const answer = await abortable(withTimeout(clock, ms, next, late), signal)
    if (answer.done === true) throw this.#ended()
    this.#awaitNext()
    return answer.value
  }

  #awaitNext(): void {
    const next = this.#answers?.next()
    this.#next = next
    next?.then(
      ({ done }) => done === true && this.#lost.abort(this.#ended()),
      (error) => this.#lost.abort(error),
    )
  }

  #ended(): AgentError {
    return new AgentError('UNAVAILABLE', `host ${this.#target.host}: has ended the handover`)
  }

  #envelope(known = this.#parts.saving.known): Uint8Array {
    const { guest, host, rings } = this.#parts.saving
    const record = withVolumeHosts(known.record, this.#parts.host.id)
    return stateBytes({ ...known, record }, { guest, rings, host, createdMs: Date.now() })
  }
}

/** The codes of a target that refuses a machine. A lost connection has others. */
const REFUSALS = ['FAILED_PRECONDITION', 'INVALID_ARGUMENT', 'RESOURCE_EXHAUSTED', 'UNIMPLEMENTED'] as const

/** The machine as its state will be: one device has left it by then. */
function withoutLeaving({ known, vsock }: Saving): Saving['known'] {
  const { record } = known
  return vsock === undefined ? known : { ...known, record: { ...record, ...withoutPresent(record, [vsock]) } }
}

async function* decoded(call: StreamCall): AsyncGenerator<MoveResponse, void> {
  for await (const message of call.answers) yield MoveResponse.decode(message)
}

function endpointOf(text: string): BulkEndpoint | undefined {
  const [, host = '', port = ''] = /^\[?([^[\]]+)\]?:(\d{1,5})$/.exec(text) ?? []
  return host === '' ? undefined : { host, port: Number(port) }
}
