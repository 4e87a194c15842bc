import { readFileSync } from 'node:fs'
import fc from 'fast-check'
import { describe } from 'vitest'
import { Any } from '../../src/gen/google/protobuf/any.ts'
import { Envelope } from '../../src/gen/state/envelope.ts'
import { printState } from '../../src/state/print-state.ts'
import {
  KINDS,
  type PayloadKind,
  StateStore,
  sealedEnvelope,
  typeUrlOf,
  UnreadableState,
} from '../../src/state/state-store.ts'
import { MemoryStateFiles } from '../support/fakes/files/memory-state-files.ts'
import { anyBytes, mutated } from '../support/fuzz/bytes.ts'
import { fuzz } from '../support/fuzz/fuzz.ts'

const RECORDED: Readonly<Record<string, string>> = JSON.parse(
  readFileSync(new URL('../fixtures/state/recorded.json', import.meta.url), 'utf8'),
)
const FILES = Object.values(RECORDED).map((text) => Buffer.from(text, 'base64'))
const VALUES = FILES.map((file) => Buffer.from(Envelope.decode(file).payload?.value ?? []))

const wrapped = fc
  .tuple(
    fc.constantFrom(...Object.values(KINDS).map(typeUrlOf), '', 'type.googleapis.com/microvm.state.v2.Any'),
    anyBytes(VALUES),
  )
  .map(([typeUrl, value]) => Buffer.from(sealedEnvelope(Any.create({ typeUrl, value }))))

/** The version is the first field, of one byte. */
const ofVersion = fc.tuple(fc.constantFrom(...FILES), fc.nat(0x7f)).map(([file, version]) => {
  const { payload = Any.create() } = Envelope.decode(Buffer.from(file))
  if (payload.value.length > 1) payload.value[1] = version
  return Buffer.from(sealedEnvelope(payload))
})

describe('state files', () => {
  fuzz('state/payloads', {
    share: 30,
    input: fc.record({
      kind: fc.constantFrom(...Object.keys(KINDS)),
      bytes: fc.oneof(mutated(FILES), wrapped, ofVersion),
    }),
    show: ({ kind, bytes }) => `${kind} ${bytes.toString('hex')}`,
    run: ({ kind, bytes }) => readState(kind, bytes),
  })
})

/** A payload of this kind and version must be read, any other refused by name; both must be printable. */
function readState(name: string, bytes: Buffer): void {
  const files = new MemoryStateFiles()
  files.write(name, bytes)
  const kind = Object.entries(KINDS).find(([key]) => key === name)?.[1]
  if (kind === undefined) throw new Error(`${name}: no such kind`)
  const { codec, ...rest } = kind
  const decode: (from: Uint8Array) => { readonly schemaVersion: number } = codec.decode
  try {
    const payload = new StateStore(files).read({ ...rest, codec: { encode: neverWritten, decode } }, name)
    if (payload?.schemaVersion !== kind.version) throw new Error(`read version ${payload?.schemaVersion}`)
  } catch (error) {
    if (!(error instanceof UnreadableState) || !error.message.startsWith(`state ${name}: `)) throw error
  }
  JSON.parse(printState(files))
}

const neverWritten: PayloadKind<{ readonly schemaVersion: number }>['codec']['encode'] = () => {
  throw new Error('nothing is written')
}
