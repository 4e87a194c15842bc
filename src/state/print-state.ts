import { messageOf } from '../base/errors.ts'
import { Envelope } from '../gen/state/envelope.ts'
import type { StateFiles } from '../os/files/state-files.ts'
import { decodeEnvelope, KINDS, typeUrlOf } from './state-store.ts'

const CONTAINERS = 'containers'

/** All payloads as JSON, by name, or why one is unreadable. 64-bit numbers are text, bytes are Base64. */
export function printState(files: StateFiles): string {
  const folders = files.list(CONTAINERS).flatMap((id) => [`${CONTAINERS}/${id}`, `${CONTAINERS}/${id}/execs`])
  const payloads: Record<string, unknown> = {}
  for (const folder of ['', 'storages', 'copies', 'requests', 'outcomes', ...folders]) {
    for (const entry of files.list(folder)) {
      const name = folder === '' ? entry : `${folder}/${entry}`
      const bytes = readFile(files, name)
      if (bytes !== undefined) payloads[name] = decodeAny(bytes)
    }
  }
  return JSON.stringify(payloads, printable, 2)
}

/** undefined for a folder. */
function readFile(files: StateFiles, name: string): Uint8Array | undefined {
  try {
    return files.read(name)
  } catch {
    return undefined
  }
}

function decodeAny(bytes: Uint8Array): unknown {
  try {
    const typeUrl = Envelope.decode(bytes).payload?.typeUrl ?? ''
    const kind = Object.values(KINDS).find((each) => typeUrlOf(each) === typeUrl)
    return kind === undefined ? { error: `is a '${typeUrl}'` } : decodeEnvelope<Payload>(kind, bytes)
  } catch (error) {
    return { error: messageOf(error) }
  }
}

type Payload = { readonly schemaVersion: number }

function printable(_key: string, value: unknown): unknown {
  if (typeof value === 'bigint') return `${value}`
  return value instanceof Uint8Array ? Buffer.from(value).toString('base64') : value
}
