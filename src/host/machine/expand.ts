import { createHash } from 'node:crypto'
import { AgentError } from '../../base/errors.ts'
import { pathOf } from '../spec/component-path.ts'
import { checkMachine } from './check-machine.ts'
import { DEFAULTS, type Defaults } from './defaults.ts'
import type { Document } from './document/document.ts'
import { domainWishes } from './domain/domain-wishes.ts'
import { mergeWishes } from './domain/merge-wishes.ts'
import { type Draft, type Part, withParts } from './features/draft.ts'
import type { HostFacts } from './features/feature.ts'
import { FEATURES } from './features/table.ts'
import { API_VERSION, hasPci, type Machine, machineShape } from './machine.ts'
import { placeDevices } from './places.ts'

export interface ExpandOptions {
  readonly facts?: HostFacts
  /** Whether the document may have a part `domain`, which names paths and bridges of the host. */
  readonly isPrivileged: boolean
  /** Whether the machine is kept by a daemon, to which its guest tells of a panic. */
  readonly isKept?: boolean
  readonly defaults?: Defaults | undefined
}

/**
 * The whole machine of a document. The same document, facts and defaults give the same machine. Throws INVALID_ARGUMENT or
 * PERMISSION_DENIED that names the field.
 */
export function expand(document: Document, options: ExpandOptions): Machine {
  const draft = draftOf(document, options)
  // Its own shape puts the fields in order, and refuses what could not be read again.
  const { defaults: _, ...whole } = draft
  const machine = machineShape.read({ ...whole, devices: placeDevices(draft) }, '')
  checkMachine(machine, {
    whole: `${document.at}.features`,
    device: (key) => draft.devices[key]?.from ?? pathOf('devices', key),
    fields: { address: 'address', bootOrder: 'bootOrder', mac: 'mac', serial: 'serial' },
  })
  return machine
}

/**
 * The fields of the document that name the machine's backends, by the backends' keys, such as `spec.features.storage[0]`; those
 * of the firmware by `firmware-kernel` and `firmware-initrd`. Throws as {@link expand} does.
 */
export function fieldsOf(document: Document, options: ExpandOptions): ReadonlyMap<string, string> {
  const { devices } = draftOf(document, options)
  const named = Object.values(devices).flatMap(({ backend, from }) =>
    backend === undefined ? [] : [[backend, from] as const],
  )
  const firmware = `${document.at}.features.firmware`
  const files = (['kernel', 'initrd'] as const).map(
    (name) => [`firmware-${name}`, `${firmware}.${name}`] as const,
  )
  return new Map([...named, ...files, ['cpu-pool', `${document.at}.features.cpu.exclusive`]])
}

function draftOf(
  document: Document,
  { defaults = DEFAULTS, facts = {}, isPrivileged, isKept = false }: ExpandOptions,
): Draft {
  const { domain, features, stability } = document
  if (domain !== undefined && !isPrivileged) {
    throw new AgentError('PERMISSION_DENIED', `${document.at}.domain: only for the administrator`)
  }
  const given = domain === undefined ? undefined : domainWishes(domain, `${document.at}.domain`)
  const wishes = given === undefined ? features : mergeWishes(features, given.wishes, document.at)
  const promised =
    stability === 'latest' ? ['not promised: stability latest expands anew at each cold boot'] : []
  const begin = {
    ...emptyDraft(document.name, facts, [...promised, ...(given?.notes ?? [])]),
    defaults,
  }
  const draft = FEATURES.reduce<Draft>((before, feature) => {
    const { name } = feature
    const at = given?.paths.get(name) ?? `${document.at}.features.${name}`
    return feature.expand(before, Object.hasOwn(wishes, name) ? wishes[name] : undefined, { facts, at })
  }, begin)
  return isKept && hasPci(draft) ? withParts(draft, [PANIC]) : draft
}

/** At a port of ISA, which both boards have, so that it takes no place on PCI. */
const PANIC: Part = {
  key: 'panic0',
  device: { kind: 'panic', model: 'pvpanic', properties: {}, from: 'panic0' },
}

function emptyDraft(
  name: string | undefined,
  facts: HostFacts,
  notes: readonly string[],
): Omit<Draft, 'defaults'> {
  return {
    ...{ apiVersion: API_VERSION, kind: 'Machine', ...(name !== undefined && { name }) },
    uuid: (facts.uuid ?? uuidOf(name ?? '')).toLowerCase(),
    board: { machine: 'pc-q35-7.2', architecture: 'x86_64', acpi: true },
    memory: { sizeMib: 1, currentMib: 1, maximumMib: 1, slots: 0 },
    cpu: {
      ...{ model: 'Westmere', match: 'exact', features: {}, count: 1, present: 1 },
      topology: { sockets: 1, cores: 1, threads: 1 },
    },
    numa: { matchHost: false, cells: [] },
    firmware: { type: 'bios', secureBoot: false },
    clock: { basis: 'utc', adjustmentSeconds: 0, timers: { hpet: false, hypervclock: false } },
    ...{ smbios: {}, iothreads: 0, devices: {}, backends: {}, notes },
  }
}

/** The identity of a machine that no host has given one, in the form of RFC 9562's version 8. */
function uuidOf(name: string): string {
  const digits = createHash('sha256').update(`microvm machine ${name}`).digest('hex')
  return digits.replace(/^(.{8})(.{4}).(.{3}).(.{3})(.{12}).*$/, '$1-$2-8$3-8$4-$5')
}
