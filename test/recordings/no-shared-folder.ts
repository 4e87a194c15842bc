import type { RecordedCall, Recording } from '../../src/ctl/recording/recording.ts'
import { decodedRequest } from '../../src/ctl/recording/wire.ts'
import { CopyFileRequest, CreateContainerRequest } from '../../src/gen/agent.ts'
import { recordingNamed } from './recording.ts'
import { isShared, suppliesOf } from './supplies.ts'

/** The recording ends at CopyFile, which the Go shim's agent did not serve. */
const BEGINNING = 'go-shim.no-shared-fs'
const COPY_LINE = 7

/** A pod of the same shim with its files in a shared folder. */
const MODEL = 'go-shim.cri-pod-five-containers'

/** The model's calls about its pause container and its first container, which mounts two volumes. */
const MODEL_LINES: readonly (readonly [first: number, last: number])[] = [
  ...([
    [7, 10],
    [12, 13],
    [15, 21],
  ] as const),
  // A program that reads the volumes.
  [46, 53],
  ...([
    [125, 131],
    [145, 150],
  ] as const),
]

/** In the model: the sandbox's id, and the random part of the name of its resolv.conf. */
const RENAMED = {
  '83f623ed26024465b2e5fc3bef409bc8946ceb805c6ea0a42618ff6fbd6259f0':
    '6c9aed135658416668885acf3d3939494f06bac8f7fabda7b3ce15b7ea653ec7',
  '0034d5d93004cc9d': 'b7426f942aec0e34',
}

/** Longer than {@link BEGINNING} takes, so that the model's calls come after it. */
const LATER_MS = 10_000

/** The offset of the model's line numbers. */
const MODEL_LINE = 1000

/**
 * The pod of `go-shim.no-shared-fs` with an end: the calls of another pod of the shim with this pod's ids, and a copy of
 * each mount source in the words of the recorded copy.
 */
export function podWithoutSharedFolder(): Recording {
  const { name, lines } = recordingNamed(BEGINNING)
  const copy = lines.find(({ line }) => line === COPY_LINE)
  if (copy?.kind !== 'call') throw new Error(`${BEGINNING}, line ${COPY_LINE}: not a call`)
  const next = recordingNamed(MODEL).lines.filter(
    (line) =>
      line.kind === 'call' && MODEL_LINES.some(([first, last]) => first <= line.line && line.line <= last),
  )
  const continued = next.flatMap((line) => (line.kind === 'call' ? withCopies(moved(line), copy) : []))
  return { name, lines: [...lines.filter(({ line }) => line <= COPY_LINE), ...continued] }
}

function moved(call: RecordedCall): RecordedCall {
  const { requestBytes = Buffer.alloc(0), answer, method } = call
  const bytes = rename(requestBytes)
  const renamed = {
    ...call,
    requestBytes: method === 'CreateContainer' ? withoutPriority(bytes) : bytes,
  }
  return {
    ...renamed,
    request: decodedRequest(renamed),
    line: call.line + MODEL_LINE,
    sentMs: call.sentMs + LATER_MS,
    answer: answer === undefined ? undefined : { ...answer, atMs: answer.atMs + LATER_MS },
  }
}

/** Each new name is as long as the old one, so the lengths in the encoded request stay right. */
function rename(bytes: Buffer): Buffer {
  const renamed = Object.entries(RENAMED).reduce(
    (text, [before, after]) => text.replaceAll(before, after),
    bytes.toString('latin1'),
  )
  return Buffer.from(renamed, 'latin1')
}

/** Some test machines do not let a process lower its oom_score_adj, as the pause container does. */
function withoutPriority(bytes: Buffer): Buffer {
  const request = CreateContainerRequest.decode(bytes)
  const process = request.OCI?.Process
  if (process === undefined || process.OOMScoreAdj >= 0n) return bytes
  process.OOMScoreAdj = 0n
  return Buffer.from(CreateContainerRequest.encode(request).finish())
}

/** A call after the copies of the files that it mounts. The sandbox's resolv.conf has already been copied. */
function withCopies(call: RecordedCall, copy: RecordedCall): readonly RecordedCall[] {
  if (call.method !== 'CreateContainer') return [call]
  const { OCI } = CreateContainerRequest.decode(call.requestBytes ?? new Uint8Array())
  const { path: copied } = model(copy)
  const sources = OCI?.Mounts?.filter(({ source }) => isShared(source) && source !== copied) ?? []
  const requests = sources.flatMap(({ source, destination }) => copiesOf(source, destination, model(copy)))
  const copies = requests.map((request) => ({
    ...copy,
    ...{ line: call.line, sentMs: call.sentMs, request: {} },
    requestBytes: Buffer.from(CopyFileRequest.encode(request).finish()),
    answer: { atMs: call.sentMs, code: 0, message: '', response: {} },
  }))
  return [...copies, call]
}

function model({ requestBytes = Buffer.alloc(0) }: RecordedCall): CopyFileRequest {
  return CopyFileRequest.decode(requestBytes)
}

function copiesOf(path: string, destination: string, words: CopyFileRequest): readonly CopyFileRequest[] {
  const supplies = suppliesOf(destination)
  const file = (name: string, text: string) => {
    const data = Buffer.from(text)
    return { ...words, path: `${path}${name}`, fileSize: BigInt(data.length), data }
  }
  if (typeof supplies === 'string') return [file('', supplies)]
  const folder = { ...words, path, fileMode: 0o040_755, fileSize: 0n, data: Buffer.alloc(0) }
  return [folder, ...Object.entries(supplies).map(([name, text]) => file(`/${name}`, text))]
}
