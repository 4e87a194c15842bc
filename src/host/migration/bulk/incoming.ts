import { rm } from 'node:fs/promises'
import { join } from 'node:path'
import { abortable } from '../../../base/abort.ts'
import { AgentError, messageOf } from '../../../base/errors.ts'
import { undoAndThrow } from '../../../base/undo.ts'
import type { Native } from '../../../os/native.ts'
import { lastLine, QEMU } from '../../instance/machine/machine.ts'
import { type BulkDisk, type BulkEndpoint, type BulkQemu, type BulkTls, NAMES } from './bulk.ts'
import { nextState } from './channel-wait.ts'
import { checkSizes } from './nodes.ts'
import {
  type Acceptor,
  acceptOne,
  give,
  giveListener,
  type KeptPort,
  type ListenPlace,
  loadAddon,
} from './sockets.ts'
import { addTls } from './tls.ts'
import { removeExports, undoBulk } from './undo.ts'

export interface IncomingOptions {
  readonly disks: readonly BulkDisk[]
  /**
   * The host's address, with a port for each channel, of which one may be kept for disks; a folder only where both QEMUs are on one
   * machine.
   */
  readonly listen:
    | { readonly host: string; readonly tls: BulkTls; readonly disks?: KeptPort | undefined }
    | { readonly folder: string; readonly tls?: undefined }
  /** Which addresses memory may come from. QEMU takes one connection only, whoever makes it. */
  readonly mayConnect?: (address: string) => boolean
}

/** A target that waits for disks and memory. */
export interface Incoming {
  /** Exports have the keys of the disks as their names; undefined without any. */
  readonly disks: BulkEndpoint | undefined
  readonly memory: BulkEndpoint
  /**
   * Resolves when memory and devices are there; the guest is paused. Rejects with FAILED_PRECONDITION and the last words of QEMU,
   * which has to be ended then. A peer that QEMU refuses is told after ten seconds.
   */
  readonly arrived: Promise<void>
  /** Closes the disks for the source. To be called before the guest runs. */
  endDisks(): Promise<void>
  /** Takes back what is here. A QEMU whose memory has begun to come cannot take another. */
  close(): Promise<void>
}

/** QEMU says nothing when it refuses a certificate: the begin of the stream is awaited for this time. */
const HANDSHAKE_MS = 10_000

/** More than a machine has disks: a peer that is refused takes one for a moment. */
const MOST_CONNECTIONS = 100

const DISKS_SOCKET = 'move-disks.sock'
const MEMORY_SOCKET = 'move-memory.sock'

/** To be called once for a QEMU that was started with `-incoming defer`. Leaves nothing when it rejects. */
export async function openIncoming(qemu: BulkQemu, options: IncomingOptions): Promise<Incoming> {
  const native = await loadAddon()
  const { disks, listen, mayConnect = () => true } = options
  const placeOf = (name: string): ListenPlace =>
    listen.tls === undefined ? { path: join(listen.folder, name) } : { host: listen.host }
  const over = new AbortController()
  const signal = AbortSignal.any([qemu.signal, over.signal])
  let acceptor: Acceptor | undefined
  const close = async (limit: AbortSignal) => {
    over.abort(new AgentError('CANCELLED', 'the move was given up'))
    acceptor?.close()
    await undoBulk({ ...qemu, signal: limit })
    if (listen.tls === undefined) await rm(join(listen.folder, DISKS_SOCKET), { force: true })
  }
  try {
    await checkSizes(qemu, disks)
    if (listen.tls !== undefined) await addTls(qemu, 'server', { ...listen.tls, native })
    const hasTls = listen.tls !== undefined
    const exported =
      disks.length === 0
        ? undefined
        : await exportDisks(qemu, {
            ...{ disks, hasTls, native },
            place: (listen.tls && listen.disks) ?? placeOf(DISKS_SOCKET),
          })
    const taken = await acceptOne(placeOf(MEMORY_SOCKET), mayConnect)
    acceptor = taken
    await setUp(qemu, hasTls)
    const arrived = receive({ ...qemu, signal }, taken, native)
    arrived.catch(() => {})
    return {
      disks: exported,
      memory: taken.endpoint,
      arrived,
      endDisks: () => removeExports(qemu),
      close: () => close(qemu.signal),
    }
  } catch (error) {
    return await undoAndThrow(error, close)
  }
}

interface Exports {
  readonly disks: readonly BulkDisk[]
  readonly hasTls: boolean
  readonly native: Native
  readonly place: ListenPlace | KeptPort
}

async function exportDisks(qemu: BulkQemu, { disks, hasTls, native, place }: Exports): Promise<BulkEndpoint> {
  const { qmp, signal } = qemu
  const endpoint = await giveListener(qemu, place, { fdname: NAMES.listener, native })
  const tls = hasTls ? { 'tls-creds': NAMES.credentials, 'tls-authz': NAMES.peer } : {}
  const addr = { type: 'fd', data: { str: NAMES.listener } } as const
  await qmp.execute('nbd-server-start', { addr, ...tls, 'max-connections': MOST_CONNECTIONS }, signal)
  for (const [index, { key, node }] of disks.entries()) {
    const names = { id: NAMES.disk(index), name: key, 'node-name': node }
    await qmp.execute('block-export-add', { type: 'nbd', ...names, writable: true }, signal)
  }
  return endpoint
}

async function setUp({ qmp, signal }: BulkQemu, hasTls: boolean): Promise<void> {
  const capabilities = [
    { capability: 'events', state: true },
    { capability: 'late-block-activate', state: true },
    { capability: 'return-path', state: true },
  ]
  await qmp.execute('migrate-set-capabilities', { capabilities }, signal)
  if (!hasTls) return
  const tls = { 'tls-creds': NAMES.credentials, 'tls-authz': NAMES.peer }
  await qmp.execute('migrate-set-parameters', tls, signal)
}

async function receive(qemu: BulkQemu, acceptor: Acceptor, native: Native): Promise<void> {
  const { folder, qmp, signal } = qemu
  const socket = await abortable(acceptor.first, signal)
  acceptor.close()
  const ends = new AbortController()
  const limit = AbortSignal.any([signal, ends.signal])
  const ended = nextState(qemu, ['completed', 'failed'], limit)
  ended.catch(() => {})
  const begun = nextState(qemu, ['active', 'completed', 'failed'], limit)
  begun.catch(() => {})
  try {
    await give(qemu, socket, { fdname: NAMES.memory, native })
    socket.destroy()
    await qmp.execute('migrate-incoming', { uri: `fd:${NAMES.memory}` }, signal)
    await abortable(begun, AbortSignal.any([signal, AbortSignal.timeout(HANDSHAKE_MS)]))
    const state = await ended
    if (state === 'failed') throw new AgentError('FAILED_PRECONDITION', 'QEMU has given up')
  } catch (error) {
    signal.throwIfAborted()
    const words = await lastLine(join(folder, `${QEMU.child}.log`))
    const text = `memory: not arrived: ${words === '' ? messageOf(error) : words}`
    throw new AgentError('FAILED_PRECONDITION', text, { cause: error })
  } finally {
    socket.destroy()
    ends.abort()
  }
}
