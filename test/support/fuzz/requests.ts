import { BinaryWriter, WireType } from '@bufbuild/protobuf/wire'
import fc from 'fast-check'
import type { Json, RecordedCall } from '../../../src/ctl/recording/recording.ts'
import { AgentServiceDefinition } from '../../../src/gen/agent.ts'
import { HealthDefinition } from '../../../src/gen/health.ts'
import { type MessageField, messageFields, REQUESTS } from '../../../src/gen/message-fields.ts'
import { IntrospectionDefinition } from '../../../src/gen/microvm/agent/v1/introspection.ts'
import { LifecycleDefinition } from '../../../src/gen/microvm/agent/v1/lifecycle.ts'
import { allRecordings } from '../../recordings/recording.ts'
import { mutated } from './bytes.ts'

export interface RequestType {
  decode(bytes: Uint8Array): object
  encode(message: never): { finish(): Uint8Array }
}

/** Request types by full method name, such as `grpc.AgentService/CreateContainer`. */
export const REQUEST_TYPES: ReadonlyMap<string, RequestType> = new Map(
  [HealthDefinition, IntrospectionDefinition, LifecycleDefinition, AgentServiceDefinition].flatMap(
    ({ fullName, methods }) =>
      Object.values(methods).map((method) => [`${fullName}/${method.name}`, method.requestType] as const),
  ),
)

export function recordedCalls(): readonly (RecordedCall & { readonly requestBytes: Buffer })[] {
  return allRecordings()
    .flatMap(({ lines }) => lines)
    .filter((line) => line.kind === 'call')
    .flatMap((call) =>
      call.requestBytes === undefined ? [] : [{ ...call, requestBytes: call.requestBytes }],
    )
}

/** The distinct encoded requests of callers, by method. */
export function recordedRequests(): ReadonlyMap<string, readonly Buffer[]> {
  const byMethod = new Map<string, Map<string, Buffer>>()
  for (const { service, method, requestBytes } of recordedCalls()) {
    const name = `${service}/${method}`
    const known = byMethod.get(name) ?? new Map<string, Buffer>()
    byMethod.set(name, known.set(requestBytes.toString('latin1'), requestBytes))
  }
  return new Map([...byMethod].map(([name, requests]) => [name, [...requests.values()]]))
}

/** Words with a meaning to a part of the agent, to JavaScript or to the kernel. */
const WORDS = [
  ...[
    '',
    ' ',
    '/',
    '.',
    '..',
    '/..',
    '/a/../b',
    '//',
    'a\0b',
    '-',
    '--help',
    '=',
    'A=1',
    '=x',
    '%s',
    '{}',
    '[]',
  ],
  ...['__proto__', 'constructor', 'toString', 'hasOwnProperty', 'length', 'null', 'undefined', 'NaN'],
  ...[
    'c1',
    'pod',
    'sandbox',
    'shared',
    'sh',
    'b',
    'c',
    'u',
    'p',
    'a',
    'rwm',
    'bind',
    'rbind',
    'tmpfs',
    'local',
  ],
  ...['network', 'mnt', 'pid', 'ipc', 'uts', 'user', 'cgroup', 'time', 'mount', 'CAP_KILL', 'RLIMIT_NOFILE'],
  ...[
    'net.a\0b',
    'net.x/../y',
    'net/../x',
    'net.',
    'SCMP_ACT_ERRNO',
    'SCMP_ARCH_X86_64',
    'SCMP_CMP_EQ',
    'SECCOMP_FILTER_FLAG_TSYNC',
    'rprivate',
    'runc/default',
  ],
  ...[
    '10.0.0.1',
    '10.0.0.1/33',
    'fd00::1',
    '::',
    '::ffff:1.2.3.4',
    '52:54:00:00:00:01',
    'eth0',
    'lo',
    '02',
    '02/01',
  ],
  ...['0', '-1', '1e9', '99999999999999999999', '0x10', '18446744073709551616', '/dev/vda', '/proc/self/exe'],
  ...['x'.repeat(300), '/x'.repeat(3000), '../'.repeat(100), '\ud83d\ude00', '\u2028', '\ufeff', '\udc00'],
]

export function words(): fc.Arbitrary<string> {
  const recorded = new Set<string>()
  const collect = (value: Json | undefined): void => {
    if (typeof value === 'string') recorded.add(value)
    else if (typeof value === 'object' && value !== null)
      for (const inner of Object.values(value)) collect(inner)
  }
  for (const { request } of recordedCalls()) collect(request)
  return fc.oneof(
    { weight: 4, arbitrary: fc.constantFrom(...WORDS) },
    { weight: 4, arbitrary: fc.constantFrom(...recorded) },
    { weight: 1, arbitrary: fc.string({ unit: 'binary', maxLength: 20 }) },
  )
}

/** Encoded messages, mostly with the right fields, with any values. */
export class MessageBytes {
  readonly #words = words()
  readonly #made = new Map<string, fc.Arbitrary<Uint8Array>>()

  /** The bytes of the named message; nested messages are at most `depth` deep. */
  of(message: string, depth = 4): fc.Arbitrary<Uint8Array> {
    const key = `${message} ${depth}`
    const known = this.#made.get(key)
    if (known !== undefined) return known
    const fields = messageFields()[message] ?? []
    const unknown = fc.tuple(fc.integer({ min: 1, max: 0x1fffffff }), this.#value(undefined, depth))
    const field = fc.oneof(
      { weight: 1, arbitrary: unknown },
      ...fields.map((one) => ({
        weight: 20,
        arbitrary: fc.tuple(fc.constant(one.number), this.#value(one, depth)),
      })),
    )
    const made = fc.array(field, { maxLength: Math.min(2 * fields.length + 1, 12) }).map(encoded)
    this.#made.set(key, made)
    return made
  }

  /** Mostly the right kind. The table lacks the proto's scalar types, so a scalar may be anything. */
  #value(field: MessageField | undefined, depth: number): fc.Arbitrary<Value> {
    const anything = fc.oneof<fc.Arbitrary<Value>[]>(
      fc.oneof(fc.constantFrom(...BIG), fc.bigInt(0n, 300n)),
      this.#words.map((word) => Buffer.from(word)),
      fc.uint8Array({ maxLength: 12 }),
      fc.constantFrom<Value>('fixed32', 'fixed64', 'group'),
    )
    if (field === undefined || depth === 0) return anything
    const inner = field.isMap
      ? fc
          .tuple(
            this.#words,
            field.message === undefined
              ? this.#words.map((word) => Buffer.from(word))
              : this.of(field.message, depth - 1),
          )
          .map(([key, value]) =>
            encoded([
              [1, Buffer.from(key)],
              [2, value],
            ]),
          )
      : field.message === undefined
        ? undefined
        : this.of(field.message, depth - 1)
    if (inner === undefined) return anything
    return fc.oneof({ weight: 12, arbitrary: inner }, { weight: 1, arbitrary: anything })
  }
}

/** A varint, bytes, or a value of another wire type. */
type Value = bigint | Uint8Array | 'fixed32' | 'fixed64' | 'group'

const BIG = [
  0n,
  1n,
  9n,
  15n,
  127n,
  128n,
  0xffffn,
  0x7fffffffn,
  0x80000000n,
  0xffffffffn,
  2n ** 53n,
  2n ** 63n - 1n,
  2n ** 63n,
  2n ** 64n - 1n,
]

function encoded(fields: readonly (readonly [number: number, value: Value])[]): Uint8Array {
  const writer = new BinaryWriter()
  for (const [number, value] of fields) {
    if (typeof value === 'bigint') writer.tag(number, WireType.Varint).uint64(value)
    else if (value === 'fixed32') writer.tag(number, WireType.Bit32).fixed32(0xfffffffe)
    else if (value === 'fixed64') writer.tag(number, WireType.Bit64).fixed64(2n ** 63n)
    else if (value === 'group') writer.tag(number, WireType.StartGroup).tag(number, WireType.EndGroup)
    else writer.tag(number, WireType.LengthDelimited).bytes(value)
  }
  return writer.finish()
}

export interface AnyCall {
  readonly method: string
  readonly payload: Uint8Array
}

/** Calls with changed recorded requests, or with requests made from the message's fields. */
export function anyCalls(methods: readonly string[] = [...REQUEST_TYPES.keys()]): fc.Arbitrary<AnyCall> {
  const recorded = recordedRequests()
  const messages = new MessageBytes()
  const seeds = [...recorded.values()].flat()
  const ofMethod = (method: string) => {
    const own = recorded.get(method)
    const payload = fc.oneof(
      { weight: 6, arbitrary: messages.of(REQUESTS[method] ?? '') },
      { weight: own === undefined ? 0 : 6, arbitrary: mutated(own ?? seeds) },
      { weight: 1, arbitrary: mutated(seeds) },
    )
    return payload.map((bytes) => ({ method, payload: bytes }))
  }
  return fc.oneof(...methods.map(ofMethod))
}

export function showCall({ method, payload }: AnyCall): string {
  return `${method} ${Buffer.from(payload).toString('base64')}`
}
