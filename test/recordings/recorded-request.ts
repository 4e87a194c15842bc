import { recordingNamed } from './recording.ts'

export type RecordedLine = readonly [name: string, line: number]

/** Throws when the line has no request. */
export function recordedRequest<Message>(
  type: { readonly decode: (bytes: Uint8Array) => Message },
  ...[name, line]: RecordedLine
): Message {
  const call = recordingNamed(name).lines.find((one) => one.line === line)
  if (call?.kind !== 'call' || call.requestBytes === undefined)
    throw new Error(`${name}, line ${line}: no request`)
  return type.decode(call.requestBytes)
}
