import { randomUUID } from 'node:crypto'
import { AgentError } from '../../../base/errors.ts'
import type { EnsureInstanceRequest, Specification } from '../../../gen/microvm/instance/v1/instance.ts'
import type { DocumentRecord, InstanceRecord } from '../../../gen/microvm/instance/v1/records.ts'
import { firstFieldDifference } from '../../machine/diff.ts'
import { type Document, parseDocument } from '../../machine/document/document.ts'
import { asSpec } from '../../qemu/machine/as-spec.ts'
import { checkCanBeKept } from '../../spec/check-spec.ts'
import { firstDifference } from '../../spec/first-difference.ts'
import { specFromProto } from '../../spec/from-proto.ts'
import type { VmSpec } from '../../spec/spec.ts'
import { isUuid, type SpecKey } from '../../spec/spec-key.ts'
import { specToProto } from '../../spec/to-proto.ts'
import type { Caller } from '../instances.ts'
import { newDocument } from './document-record.ts'
import type { HostMachines } from './host-machines.ts'

/** What a call of EnsureInstance wants. */
export interface WantedInstance {
  /** The path of the first field in which a present instance is another one; undefined for the equal one. */
  differenceTo(record: Readonly<InstanceRecord>): string | undefined
  /** What is to be recorded of a new one. */
  make(key: SpecKey): Promise<NewInstance>
}

export interface NewInstance {
  readonly specification: Specification
  readonly document: DocumentRecord | undefined
  /** The guest's context id, where 0 leaves the choice to the daemon; undefined without vsock. */
  readonly cid: number | undefined
}

/** Throws INVALID_ARGUMENT or PERMISSION_DENIED that names the field. */
export function wantedInstance(
  { document, migrationTarget, specification }: EnsureInstanceRequest,
  { tenant }: Pick<Caller, 'tenant'>,
  parts: { readonly isKept: boolean; readonly machines?: HostMachines | undefined },
): WantedInstance {
  if (migrationTarget !== undefined)
    throw new AgentError('UNIMPLEMENTED', 'migration_target: an instance cannot come from another host yet')
  if (document !== undefined) return wantedDocument(document, tenant === undefined, parts.machines)
  if (specification === undefined) throw new AgentError('INVALID_ARGUMENT', 'specification: missing')
  const spec = specFromProto(specification)
  if (parts.isKept) checkCanBeKept(spec)
  return {
    differenceTo: ({ document: given, specification: present }) =>
      given !== undefined || present === undefined
        ? 'specification'
        : firstDifference(specFromProto(present), spec),
    make: async () => ({ specification: specToProto(spec), document: undefined, cid: cidOf(spec) }),
  }
}

/** The machine that a document means now, in JSON. Throws as EnsureInstance does. */
export async function expandedDocument(
  text: string,
  isPrivileged: boolean,
  machines: HostMachines | undefined,
): Promise<string> {
  if (machines === undefined) throw new AgentError('UNIMPLEMENTED', 'no machines of documents here')
  return JSON.stringify(await machines.expand(parseDocument(text), { isPrivileged }))
}

function wantedDocument(
  text: string,
  isPrivileged: boolean,
  machines: HostMachines | undefined,
): WantedInstance {
  if (machines === undefined) throw new AgentError('UNIMPLEMENTED', 'document: no machines of documents here')
  const read = (): Document => {
    const document = parseDocument(text)
    if (document.domain === undefined || isPrivileged) return document
    throw new AgentError('PERMISSION_DENIED', `${document.at}.domain: only for the administrator`)
  }
  return {
    differenceTo: ({ document: present }) => {
      // This version may not read what an earlier one did.
      if (present?.given === text) return undefined
      const document = read()
      if (present === undefined) return 'document'
      const earlier = readRecorded(present.given)
      if (earlier === undefined) return 'document (recorded by another version)'
      // Labels are properties of the instance.
      const { at: _, labels: __, ...wanted } = document
      const { at, labels: ___, ...given } = earlier
      const difference = firstFieldDifference(given, wanted)
      return difference && (difference === 'name' ? 'metadata.name' : `${at}.${difference}`)
    },
    make: async (key) => {
      const document = read()
      const uuid = isUuid(key) ? key : randomUUID()
      const machine = await machines.expand(document, { isPrivileged, uuid })
      const spec = asSpec(machine, {})
      const own = Object.values(machine.devices).find(({ kind }) => kind === 'vsock')
      return {
        specification: specToProto(spec),
        document: newDocument(text, document.stability, isPrivileged, machine),
        cid: own && Number(own.properties['guest-cid'] ?? 0),
      }
    },
  }
}

/** Undefined for what this version does not read. */
function readRecorded(given: string): Document | undefined {
  try {
    return parseDocument(given)
  } catch {
    return undefined
  }
}

function cidOf({ devices }: VmSpec): number | undefined {
  return Object.values(devices).find((device) => device.kind === 'vsock')?.cid
}
