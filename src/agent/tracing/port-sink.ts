import type { Os } from '../../os/os.ts'
import type { HostAddress } from '../../os/sockets/host-sockets.ts'
import type { Fd } from '../../os/streams/streams.ts'
import { type FinishedSpan, resourceOf, SAMPLED, type Service } from '../../rpc/tracing/finished-span.ts'
import type { SpanSink } from '../../rpc/tracing/span-queue.ts'

/** The big-endian length of a span. */
const HEADER_BYTES = 8

/** The kernel gives up connecting after this time. */
const DIAL_MS = 2000

/** Sends spans to a port of the host as Kata's agent does: each as JSON behind its length. */
export function portSink(
  { hostSockets, streams }: Pick<Os, 'hostSockets' | 'streams'>,
  address: HostAddress,
  service: Service,
): SpanSink {
  const resource = valuesOf(resourceOf(service))
  let connection: Fd | undefined
  const close = () => {
    if (connection !== undefined) streams.close(connection)
    connection = undefined
  }
  const connect = async (signal: AbortSignal) => {
    connection = hostSockets.socket(address, DIAL_MS)
    await hostSockets.connect(connection, address, signal)
    return connection
  }
  return {
    name: address.kind === 'unix' ? address.path : `port ${address.port} of the host`,
    send: async (spans, signal) => {
      try {
        const socket = connection ?? (await connect(signal))
        let rest: Uint8Array = Buffer.concat(spans.map((span) => frameOf(span, resource)))
        while (rest.length > 0) {
          await streams.writable(socket, signal)
          rest = rest.subarray(streams.tryWrite(socket, rest))
        }
      } catch (error) {
        // Otherwise the receiver would take bytes of a partly written span for a length.
        close()
        throw error
      }
    },
    close,
  }
}

function frameOf(span: FinishedSpan, resource: StringValues): Buffer {
  const body = Buffer.from(spanDataOf(span, resource))
  const frame = Buffer.alloc(HEADER_BYTES + body.length)
  frame.writeBigUInt64BE(BigInt(body.length))
  body.copy(frame, HEADER_BYTES)
  return frame
}

const KINDS = { step: 'Internal', call: 'Server' }
const NO_ENTRIES = { queue: [], max_len: 128, dropped_count: 0 }

/** The `SpanData` of the Rust library of Kata's forwarder in serde's JSON: ids are numbers of 128 and 64 bits. */
function spanDataOf(span: FinishedSpan, resource: StringValues): string {
  const { traceId, spanId, parentSpanId, attributes } = span
  const ids = `"trace_id":${numberOf(traceId)},"span_id":${numberOf(spanId)}`
  const context = `{${ids},"trace_flags":${SAMPLED},"is_remote":false,"trace_state":null}`
  const rest = {
    span_kind: KINDS[span.kind],
    name: span.name,
    start_time: systemTime(span.startNs),
    end_time: systemTime(span.endNs),
    attributes: {
      map: valuesOf(attributes),
      evict_list: Object.keys(attributes),
      max_len: 128,
      dropped_count: 0,
    },
    message_events: NO_ENTRIES,
    links: NO_ENTRIES,
    status_code: span.isFailed ? 'Error' : 'Unset',
    status_message: '',
    resource: { attrs: resource },
  }
  return `{"span_context":${context},"parent_span_id":${numberOf(parentSpanId ?? '0')},${JSON.stringify(rest).slice(1)}`
}

/** Decimal text, because an id exceeds JavaScript's safe integers. */
function numberOf(id: string): string {
  return BigInt(`0x${id}`).toString()
}

function systemTime(nanoseconds: bigint) {
  return {
    secs_since_epoch: Number(nanoseconds / 1_000_000_000n),
    nanos_since_epoch: Number(nanoseconds % 1_000_000_000n),
  }
}

type StringValues = Readonly<Record<string, { readonly String: string }>>

function valuesOf(attributes: Readonly<Record<string, string>>): StringValues {
  return Object.fromEntries(Object.entries(attributes).map(([name, value]) => [name, { String: value }]))
}
