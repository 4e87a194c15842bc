import { AgentError, messageOf } from '../../../base/errors.ts'
import type { InstanceRecord } from '../../../gen/microvm/instance/v1/records.ts'
import { statusOf } from '../../../rpc/status.ts'
import type { MachineInstance } from '../instance.ts'
import type { Caller } from '../instances.ts'

/** What a document's names are on this host, its tenant need not know. */
export function areFilesHidden(
  { document }: Readonly<InstanceRecord>,
  { tenant }: Pick<Caller, 'tenant'>,
): boolean {
  return document !== undefined && tenant !== undefined
}

/** What the record of an instance is to have. */
type Planned = Partial<Pick<InstanceRecord, 'document' | 'specification'>>

/**
 * Rethrows an error without what a caller need not know. `planned` is what the record is about to have.
 */
export function toldTo(
  caller: Pick<Caller, 'tenant'>,
  instance: MachineInstance,
  planned: Planned = {},
): (error: unknown) => never {
  return (error) => {
    throw areFilesHidden(instance.record, caller) ? withoutPaths(error, instance, planned) : error
  }
}

/** The same for the instance's own tenant, who reads of the error in the record and in events. */
export function asRecorded(instance: MachineInstance): (error: unknown) => never {
  return (error) => {
    throw recorded(error, instance, {})
  }
}

/** What the record and events say of an error. */
export function recordedText(error: unknown, instance: MachineInstance, planned: Planned = {}): string {
  return messageOf(recorded(error, instance, planned))
}

function recorded(error: unknown, instance: MachineInstance, planned: Planned): unknown {
  const tenant = instance.record.properties?.tenant || undefined
  return areFilesHidden(instance.record, { tenant }) ? withoutPaths(error, instance, planned) : error
}

function withoutPaths(error: unknown, { context, record }: MachineInstance, planned: Planned): unknown {
  const places = [...placesOf(record), ...placesOf(planned), ...record.layers.map(({ base }) => base)]
  // A path may begin another one.
  const longestFirst = [...new Set([...places, context.folder])].toSorted((a, b) => b.length - a.length)
  // Its causes, which an answer has too, are in the text.
  const { code, message } = statusOf(error)
  const known = longestFirst.reduce((left, path) => left.replaceAll(path, HIDDEN), message)
  // What a name leads to may be in no record yet; what is wrong with a request has the caller's own words.
  const text = code === 'INVALID_ARGUMENT' ? known : known.replaceAll(PATH, HIDDEN)
  return text === message ? error : new AgentError(code, text)
}

const HIDDEN = 'a file of the host'
const PATH = /(?<=^|[\s"'(=])\/[^\s"':;,)]+/g

/** Where files, sockets and servers are, by a specification and by what the host has behind a document. */
function placesOf({ document, specification }: Planned): readonly string[] {
  const behind: unknown = JSON.parse(document?.backends || '{}')
  return [specification?.backends, behind].flatMap(textsOf).filter((text) => PLACE.test(text))
}

const PLACE = /^(?:\/.|[a-z]+:\/\/)/

function textsOf(value: unknown): readonly string[] {
  if (typeof value === 'string') return [value]
  return typeof value === 'object' && value !== null ? Object.values(value).flatMap(textsOf) : []
}
