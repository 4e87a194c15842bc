import { AgentError } from '../../../base/errors.ts'
import { undoAndThrow } from '../../../base/undo.ts'
import type { Native } from '../../../os/native.ts'
import {
  type BulkDisk,
  type BulkEndpoint,
  type BulkProgress,
  type BulkQemu,
  type BulkTls,
  NAMES,
} from './bulk.ts'
import { migrationError, nextState } from './channel-wait.ts'
import { letRun, stopOf } from './live-emulation.ts'
import { copyToStep, finishMirrors } from './mirrors.ts'
import { checkSizes } from './nodes.ts'
import type { BulkSettings } from './settings.ts'
import { giveConnection, loadAddon, nameOf, type Wire } from './sockets.ts'
import { addTls } from './tls.ts'
import { removeTargets, undoBulk } from './undo.ts'
import { Watch } from './watch.ts'

export interface OutgoingOptions {
  readonly disks: readonly BulkDisk[]
  /** As the target has told them. */
  readonly endpoints: { readonly disks: BulkEndpoint | undefined; readonly memory: BulkEndpoint }
  /** Undefined only for unix sockets. */
  readonly tls: BulkTls | undefined
  readonly settings: BulkSettings
  /** Whether the guest runs; then it goes on after `close`. */
  readonly wasRunning: boolean
  /** Ends the move. Then every call rejects with its reason. */
  readonly signal: AbortSignal
  readonly onProgress?: (progress: BulkProgress) => void
}

/**
 * A source. The calls are made in this order. Each rejects as soon as a mirror or the stream has failed, or a wire has carried nothing
 * for `stallMs`, or `signal` has fired; `close` is to be called then.
 */
export interface Outgoing {
  /** Copies the disks while the guest runs. Afterwards each write of the guest ends once it is on both sides. */
  copyDisks(): Promise<void>
  /**
   * Sends memory while the guest runs, or after it was stopped where QEMU would lose writes. Afterwards the guest stands still, and all
   * but the rest is sent. Resolves with the time of `performance` from which the guest stands still; what it has stood before is added.
   */
  sendMemory(): Promise<number>
  /** Ends the mirrors: the disks are the same, and the source writes no more. */
  endDisks(): Promise<void>
  /** Sends the rest, and waits until the target has all. QEMU is in the state `postmigrate` then. */
  endMemory(): Promise<void>
  /** Resolves when one of the wires or mirrors has failed, also between two calls; never rejects. */
  readonly failed: Promise<AgentError>
  /** Takes back all that is here, and lets the guest go on as it was. Must not be called when the target may run. */
  close(): Promise<void>
  /** Forgets the wires after the end of all; QEMU is ended by the caller. */
  finish(): void
}

/** Connects to the disks of the target. Leaves nothing when it rejects. */
export async function openOutgoing(qemu: BulkQemu, options: OutgoingOptions): Promise<Outgoing> {
  const { disks, endpoints, settings, signal, tls, wasRunning, onProgress = () => {} } = options
  const native = await loadAddon()
  const limited = { ...qemu, signal: AbortSignal.any([qemu.signal, signal]) }
  const wires: Wire[] = []
  const cut = () => {
    for (const wire of wires) wire.cut()
  }
  const close = async (limit: AbortSignal) => {
    // QEMU may wait for the target, and could not be told anything then.
    cut()
    await undoBulk({ ...qemu, signal: limit }, { source: { wasRunning } })
    for (const wire of wires) wire.close()
  }
  const keep = (wire: Wire) => void wires.push(wire)
  const watch = new Watch({ qemu: limited, settings, onProgress, cut })
  try {
    await checkSizes(limited, disks)
    await setUp(limited, { settings, tls })
    if (tls !== undefined) await addTls(limited, 'client', { ...tls, native })
    for (const [index, { key }] of disks.entries()) {
      if (endpoints.disks === undefined)
        throw new AgentError('FAILED_PRECONDITION', `disk ${key}: the target has no place for it`)
      const parts = { index, key, endpoint: endpoints.disks, tls, native, keep }
      await watch.unlessFailed(connectDisk(limited, parts))
    }
  } catch (error) {
    watch.end()
    return await undoAndThrow(error, close)
  }
  const mirrors = { qemu: limited, disks, watch, bandwidth: settings.bandwidthBytesPerSecond }
  return {
    failed: watch.failed,
    copyDisks: () => watch.unlessFailed(copyToStep(mirrors)),
    sendMemory: () =>
      watch.unlessFailed(
        sendMemory(limited, {
          endpoint: endpoints.memory,
          native,
          tls,
          wasRunning,
          watch,
          keep,
        }),
      ),
    endDisks: () => watch.unlessFailed(finishMirrors(mirrors).then(() => removeTargets(limited))),
    endMemory: () => watch.unlessFailed(endMemory(limited, watch)),
    close: async () => {
      watch.end()
      await close(qemu.signal)
    },
    finish: () => {
      watch.end()
      for (const wire of wires) wire.close()
    },
  }
}

interface Connected {
  readonly endpoint: BulkEndpoint
  readonly native: Native
  readonly tls: BulkTls | undefined
  /** Is called with the wire before QEMU uses it: QEMU answers nothing while it waits for its peer. */
  readonly keep: (wire: Wire) => void
}

async function connectDisk(
  qemu: BulkQemu,
  { index, key, ...parts }: Connected & { readonly index: number; readonly key: string },
): Promise<void> {
  const { endpoint, keep, native, tls } = parts
  checkSecure(parts)
  const node = NAMES.disk(index)
  keep(await giveConnection(qemu, endpoint, { fdname: node, native, isRelayed: tls !== undefined }))
  const secured = tls && { 'tls-creds': NAMES.credentials, 'tls-hostname': tls.peer }
  const options = { driver: 'nbd', 'node-name': node, server: { type: 'fd', str: node }, export: key }
  try {
    await qemu.qmp.execute('blockdev-add', { ...options, ...secured }, qemu.signal)
  } catch (error) {
    throw refused(`disk ${key}`, error)
  }
}

/** The settings of QEMU's stream, whose events are wanted. */
async function setUp(
  { qmp, signal }: BulkQemu,
  { settings, tls }: Pick<OutgoingOptions, 'settings' | 'tls'>,
): Promise<void> {
  const { bandwidthBytesPerSecond, downtimeMs, throttlePercent } = settings
  const isOn = {
    events: true,
    'pause-before-switchover': true,
    // QEMU has not completed before the target has all.
    'return-path': true,
    'x-ignore-shared': false,
    'auto-converge': throttlePercent > 0,
  }
  const capabilities = Object.entries(isOn).map(([capability, state]) => ({ capability, state }))
  await qmp.execute('migrate-set-capabilities', { capabilities }, signal)
  const secured = tls && { 'tls-creds': NAMES.credentials, 'tls-hostname': tls.peer }
  const limits = { 'max-bandwidth': bandwidthBytesPerSecond, 'downtime-limit': downtimeMs }
  const throttle = throttlePercent > 0 ? { 'max-cpu-throttle': throttlePercent } : {}
  await qmp.execute('migrate-set-parameters', { ...limits, ...throttle, ...secured }, signal)
}

async function sendMemory(
  qemu: BulkQemu,
  { watch, wasRunning, ...parts }: Connected & { readonly watch: Watch; readonly wasRunning: boolean },
): Promise<number> {
  checkSecure(parts)
  const { endpoint, keep, native } = parts
  const { qmp, signal } = qemu
  keep(await giveConnection(qemu, endpoint, { fdname: NAMES.memory, native }))
  const stop = await stopOf(qemu)
  // QEMU looks at the guest's memory once more only after it has stopped the guest.
  if (stop === 'for the first look')
    await qmp.execute('migrate-set-parameters', { 'downtime-limit': 0 }, signal)
  const stoppedAt = performance.now()
  if (stop !== 'none') await qmp.execute('stop', {}, signal)
  let stoodMs = 0
  await following(qemu, ['pre-switchover'], async () => {
    const begin = async () => {
      await qmp.execute('migrate', { uri: `fd:${NAMES.memory}` }, signal)
      watch.memoryBegins()
    }
    if (stop !== 'for the first look') return await begin()
    // The first look has been taken by then.
    await following(qemu, ['active'], begin)
    if (wasRunning) await letRun(qemu)
    stoodMs = performance.now() - stoppedAt
  })
  return stop === 'for all' ? stoppedAt : performance.now() - stoodMs
}

async function endMemory(qemu: BulkQemu, watch: Watch): Promise<void> {
  await following(qemu, ['completed'], async () => {
    await qemu.qmp.execute('migrate-continue', { state: 'pre-switchover' }, qemu.signal)
  })
  watch.memoryEnds()
}

/** Waits for a state of the migration that `begin` leads to. */
async function following(
  qemu: BulkQemu,
  wanted: readonly string[],
  begin: () => Promise<void>,
): Promise<void> {
  const over = new AbortController()
  const reached = nextState(
    qemu,
    [...wanted, 'failed', 'cancelled'],
    AbortSignal.any([qemu.signal, over.signal]),
  )
  reached.catch(() => {})
  try {
    await begin()
    if (wanted.includes(await reached)) return
  } finally {
    over.abort()
  }
  throw migrationError(await qemu.qmp.execute('query-migrate', {}, qemu.signal))
}

function checkSecure({ endpoint, tls }: Pick<Connected, 'endpoint' | 'tls'>): void {
  if ('path' in endpoint === (tls === undefined)) return
  const text = tls === undefined ? 'TCP without certificates' : 'a unix socket with certificates'
  throw new AgentError('FAILED_PRECONDITION', `${nameOf(endpoint)}: ${text}`)
}

function refused(what: string, error: unknown): unknown {
  if (!(error instanceof AgentError) || error.code !== 'INTERNAL') return error
  return new AgentError('FAILED_PRECONDITION', `${what}: QEMU: ${error.message}`, { cause: error })
}
