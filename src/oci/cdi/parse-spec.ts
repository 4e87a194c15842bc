import type { ContainerEdits } from './container-edits.ts'
import { fieldsOf, listOf, malformed, optional, textOf } from './fields.ts'
import { isDeviceName, isKind } from './names.ts'
import { parseEdits } from './parse-edits.ts'

/** One specification of the Container Device Interface: the devices of one kind. */
export interface CdiSpec {
  readonly kind: string
  /** The edits for every container that has any of its devices. */
  readonly edits: ContainerEdits
  readonly devices: ReadonlyMap<string, ContainerEdits>
}

/** Parses the value of a JSON or YAML file. Throws INTERNAL naming the malformed field. */
export function parseCdiSpec(value: unknown): CdiSpec {
  const names = ['cdiVersion', 'kind', 'annotations', 'devices', 'containerEdits'] as const
  const fields = fieldsOf(value, '', names)
  const version = textOf(fields.cdiVersion, 'cdiVersion')
  if (!/^v?[01]\.\d+\.\d+$/.test(version)) throw malformed(`cdiVersion: unknown version "${version}"`)
  const kind = textOf(fields.kind, 'kind')
  if (!isKind(kind)) throw malformed(`kind: "${kind}", want vendor/class`)
  const devices = new Map<string, ContainerEdits>()
  for (const { name, edits, where } of listOf(fields.devices, 'devices', parseDevice)) {
    if (devices.has(name)) throw malformed(`${where}.name: "${name}" given twice`)
    devices.set(name, edits)
  }
  return { kind, edits: parseEdits(fields.containerEdits, 'containerEdits'), devices }
}

function parseDevice(value: unknown, where: string) {
  const fields = fieldsOf(value, where, ['name', 'annotations', 'containerEdits'])
  // YAML takes a name such as 0 for a number.
  const name = typeof fields.name === 'number' ? String(fields.name) : textOf(fields.name, `${where}.name`)
  if (!isDeviceName(name)) throw malformed(`${where}.name: "${name}", want a device name`)
  const edits = optional(fields.containerEdits, `${where}.containerEdits`, parseEdits)
  if (edits === undefined) throw malformed(`${where}.containerEdits: missing`)
  return { name, edits, where }
}
