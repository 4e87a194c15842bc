import { join } from 'node:path'
import type { Duplex } from 'node:stream'
import { abortable } from '../../base/abort.ts'
import { AgentError } from '../../base/errors.ts'
import type {
  AllocatePortRequest,
  AttachRequest,
  AttachResponse,
  Moved,
  Stream,
} from '../../gen/microvm/instance/v1/instance.ts'
import { type StepRecord, StreamRecord } from '../../gen/microvm/instance/v1/records.ts'
import { drained, SharedConsole } from './console/shared-console.ts'
import { answer } from './holder/ask-holder.ts'
import type { Holder } from './holder/holder.ts'
import type { MachineInstance } from './instance.ts'
import { guestSocket } from './machine/daemon-steps.ts'
import { streamRows } from './record/instance-record.ts'
import type { Change } from './registry/registry.ts'

/** The ring of the console. */
const CONSOLE = 0
const LAST_PORT = 0xffff_fffe

/** Reserves the next port and listens there. To be called in a change. */
export async function allocatePort(
  instance: MachineInstance,
  { container, exec, stream }: AllocatePortRequest,
): Promise<Stream> {
  const { recorded, context, key } = instance
  const holder = holderOf(instance)
  const port = recorded.record.nextPort
  if (instance.streams.size >= context.limits.streams || port > LAST_PORT)
    throw new AgentError(
      'RESOURCE_EXHAUSTED',
      `instance ${key}: ${instance.streams.size} streams, want fewer`,
    )
  const record: StreamRecord = { instance: key, port, container, exec, stream }
  const socket = `${guestSocket(context.folder)}_${port}`
  const step = recorded.step('stream', [`${port}`, socket, join(context.folder, 'streams', `${port}.ring`)])
  const row: Change = {
    table: 'streams',
    key: `${key}/${port}`,
    payload: StreamRecord.encode(record).finish(),
  }
  const text = `port ${port} is for ${stream} of ${exec || 'the first process'} of container ${container}`
  await recorded.commit({ set: { nextPort: port + 1 }, add: [step], rows: [row], kind: 'state', text })
  instance.streams.set(port, record)
  try {
    await answer(context, holder.listen(socket, port))
  } catch (error) {
    instance.streams.delete(port)
    // It may listen late.
    void holder.closeRing(port).catch(() => {})
    await recorded.note({
      drop: [step],
      rows: streamRows([step]),
      kind: 'state',
      text: `port ${port} is free`,
    })
    throw error
  }
  return { ...record, first: 0n, end: 0n, closed: false }
}

/** The ports on which no connection of the guest is. */
export async function closedPorts({ context, streams }: MachineInstance): Promise<readonly number[]> {
  const rings = await answer(context, context.holder?.rings() ?? Promise.resolve([]))
  return [...streams.keys()].filter((port) =>
    rings.some(({ number, isClosed }) => number === port && isClosed),
  )
}

/** Listens on a port whose connection has ended; the bytes that come follow those before. */
export async function listenAgain(instance: MachineInstance, port: number): Promise<void> {
  const { context } = instance
  await answer(context, holderOf(instance).listen(`${guestSocket(context.folder)}_${port}`, port))
}

/** Listens again on the ports that an earlier daemon has reserved and not listened on yet. */
export async function settleStreams(instance: MachineInstance): Promise<void> {
  const { context, streams } = instance
  const holder = holderOf(instance)
  const rings = new Set((await answer(context, holder.rings())).map(({ number }) => number))
  for (const port of streams.keys()) {
    if (!rings.has(port)) await answer(context, holder.listen(`${guestSocket(context.folder)}_${port}`, port))
  }
}

export async function listStreams(instance: MachineInstance): Promise<readonly Stream[]> {
  const { context, streams } = instance
  const { holder } = context
  const rings = holder === undefined ? [] : await answer(context, holder.rings())
  return [...streams.values()].map(({ port, container, exec, stream }) => {
    const ring = rings.find(({ number }) => number === port)
    const { first = 0n, end = 0n, isClosed = true } = ring ?? {}
    return { port, container, exec, stream, first, end, closed: isClosed }
  })
}

/** Ends the streams of a boot that is over, and returns the steps that are undone by this. */
export async function endStreams(instance: MachineInstance): Promise<readonly StepRecord[]> {
  const { context, recorded, streams } = instance
  const { holder } = context
  if (holder !== undefined) {
    for (const port of streams.keys()) await answer(context, holder.closeRing(port)).catch(onlyNotFound)
  }
  streams.clear()
  return recorded.steps.filter(({ step }) => step === 'stream')
}

/** The daemon may have died before the holder listened there. */
function onlyNotFound(error: unknown): void {
  if (!(error instanceof AgentError) || error.code !== 'NOT_FOUND') throw error
}

/** Why calls of a boot end: the machine is on its way to another host. */
export class Moving extends AgentError {
  /** Where it is; undefined when it goes on here. */
  readonly outcome: Promise<Moved | undefined>

  constructor(key: string, outcome: Promise<Moved | undefined>) {
    super('ABORTED', `instance ${key}: the machine is moving to another host`, { reason: 'moving' })
    this.outcome = outcome
  }
}

/**
 * What a stream, or the console, has carried since an offset, and what it carries from now on. When the machine moves meanwhile, the
 * last answer has where it is.
 */
export async function* attach(
  instance: MachineInstance,
  { port, offset }: AttachRequest,
  signal: AbortSignal,
): AsyncGenerator<AttachResponse> {
  if (port !== CONSOLE && !instance.streams.has(port))
    throw new AgentError('NOT_FOUND', `instance ${instance.key}: port ${port}: not found`)
  for (let position = offset; ; ) {
    try {
      const boot = instance.duringBoot(signal)
      const { first, stream } = await answer(instance.context, holderOf(instance).attach(port, position))
      position = first
      for await (const data of readUntil(stream, boot)) {
        yield { offset: position, data, moved: undefined }
        position += BigInt(data.length)
      }
      return
    } catch (error) {
      if (signal.aborted || !(error instanceof Moving)) throw error
      const moved = await abortable(error.outcome, signal)
      if (moved === undefined) continue
      return yield { offset: position, data: NOTHING, moved }
    }
  }
}

const NOTHING = new Uint8Array(0)

/** The last bytes of the console, then all that come; `input` is typed. */
export async function* console(
  instance: MachineInstance,
  input: AsyncIterable<Uint8Array>,
  signal: AbortSignal,
): AsyncGenerator<Uint8Array> {
  const holder = holderOf(instance)
  const devices = Object.values(instance.record.specification?.devices ?? {})
  if (!devices.some(({ serial, virtioConsole }) => (serial ?? virtioConsole) !== undefined))
    throw new AgentError('FAILED_PRECONDITION', `instance ${instance.key}: the machine has no console`)
  const shared =
    instance.console ??
    new SharedConsole(holder, () => {
      if (instance.console === shared) instance.console = undefined
    })
  instance.console = shared
  yield* shared.join(input, signal)
}

/** Sends `input` to the stream, and yields what comes from there until either side ends. */
export async function* joined(
  stream: Duplex,
  input: AsyncIterable<Uint8Array>,
  signal: AbortSignal,
): AsyncGenerator<Uint8Array> {
  // It may outlast the stream, until the caller's next bytes; they are dropped.
  void pump(input, stream).catch(() => stream.destroy())
  yield* readUntil(stream, signal)
}

async function pump(input: AsyncIterable<Uint8Array>, stream: Duplex): Promise<void> {
  for await (const data of input) {
    if (stream.destroyed) return
    if (!stream.write(data)) await drained(stream)
  }
  stream.end()
}

async function* readUntil(stream: Duplex, signal: AbortSignal): AsyncGenerator<Uint8Array> {
  const onAbort = () => stream.destroy()
  signal.addEventListener('abort', onAbort, { once: true })
  if (signal.aborted) onAbort()
  try {
    for await (const data of stream) yield data
  } catch (error) {
    signal.throwIfAborted()
    // Of another host, which has the machine.
    if (error instanceof AgentError) throw error
    throw new AgentError('UNAVAILABLE', 'stream: the connection was lost', { cause: error })
  } finally {
    signal.removeEventListener('abort', onAbort)
    stream.destroy()
  }
}

function holderOf({ context, key }: MachineInstance): Holder {
  if (context.holder !== undefined && context.machine !== undefined) return context.holder
  throw new AgentError('FAILED_PRECONDITION', `instance ${key}: stopped, want paused or running`)
}
