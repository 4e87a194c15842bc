import { recordingNamed } from './recording.ts'

/** A line of a recording. */
export type RecordedLine = readonly [name: string, line: number]

/** The request of one line of a recording, decoded. Throws when the line has none. */
export function recordedRequest<Message>(
  type: { readonly decode: (bytes: Uint8Array) => Message },
  ...[name, line]: RecordedLine
): Message {
  const call = recordingNamed(name).lines.find((one) => one.line === line)
  if (call?.kind !== 'call' || call.requestBytes === undefined)
    throw new Error(`${name}, line ${line}: no request`)
  return type.decode(call.requestBytes)
}
