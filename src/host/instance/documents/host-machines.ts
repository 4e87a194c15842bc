import { AgentError } from '../../../base/errors.ts'
import { Stability } from '../../../gen/microvm/instance/v1/instance.ts'
import type { DocumentRecord, InstanceRecord } from '../../../gen/microvm/instance/v1/records.ts'
import { checkLinks, openCatalogue } from '../../catalogue/open-catalogue.ts'
import { type FieldNames, resolveBackends, resolveSecrets } from '../../catalogue/resolve-backends.ts'
import { DEFAULTS, type Defaults } from '../../machine/defaults.ts'
import { type Document, parseDocument } from '../../machine/document/document.ts'
import { expand, fieldsOf } from '../../machine/expand.ts'
import type { HostFacts } from '../../machine/features/feature.ts'
import type { Machine } from '../../machine/machine.ts'
import { withPlugsOf } from '../../machine/plugged.ts'
import { type AskedQemu, checkHardware } from '../../qemu/capabilities.ts'
import { asSpec, type Backends } from '../../qemu/machine/as-spec.ts'
import { checkFilters } from '../../spec/check-device.ts'
import { pathOf } from '../../spec/component-path.ts'
import { specToProto } from '../../spec/to-proto.ts'
import { checkImages } from './check-images.ts'
import { machinesOf, type Provided, withStarted } from './document-record.ts'
import { ownBackends } from './own-files.ts'

/** What this host makes of documents. */
export interface HostMachines {
  readonly defaults: Defaults
  /** The whole machine of a document, with what this host adds. */
  expand(
    document: Document,
    options: { readonly isPrivileged: boolean; readonly uuid?: string },
  ): Promise<Machine>
  /** What this host puts behind the machine's devices. `plugged`: the fields of devices that the document has not, by their backends. */
  provide(
    machine: Machine,
    record: Readonly<InstanceRecord>,
    folder: string,
    plugged?: FieldNames,
  ): Promise<Provided>
}

export function hostMachines({
  defaults = DEFAULTS,
  ...parts
}: {
  readonly defaults?: Defaults | undefined
  readonly facts: HostFacts
  readonly qemu: AskedQemu
  /** Of the catalogue. */
  readonly catalogue?: string | undefined
}): HostMachines {
  return {
    defaults,
    expand: async (document, { isPrivileged, uuid }) => {
      const { cpuModels } = await parts.qemu.capabilities()
      const facts = { ...parts.facts, cpuModels, ...(uuid !== undefined && { uuid }) }
      const machine = expand(document, { defaults, facts, isPrivileged, isKept: true })
      const { cpu } = machine
      const isNamed = cpu.match === 'exact'
      const expansion = isNamed ? await parts.qemu.expandCpu(cpu.model, cpu.features) : undefined
      const whole = { ...machine, cpu: { ...cpu, ...(expansion && { expansion }) } }
      await checkHardware(whole, parts.qemu)
      return whole
    },
    provide: async (machine, { document, properties }, folder, plugged = new Map()) => {
      await checkHardware(machine, parts.qemu)
      const catalogue = await openCatalogue(parts.catalogue)
      const options = {
        fields: new Map([...namesOf(document), ...plugged]),
        isPrivileged: document?.isPrivileged ?? false,
      }
      // The tenant may plug in further devices, whoever gave the document.
      const tenant = properties?.tenant
      const found = resolveBackends(machine, tenant, catalogue, options)
      const passwords = resolveSecrets(machine, tenant, catalogue, options)
      checkCards(machine, found, options.fields)
      await checkLinks(catalogue, found)
      await checkImages(found)
      return { backends: { ...found, ...ownBackends(machine, folder) }, passwords }
    },
  }
}

/** Throws INVALID_ARGUMENT that names the field for a filter that the network behind a card cannot have. */
function checkCards(machine: Machine, backends: Backends, fields: ReadonlyMap<string, string>): void {
  const spec = asSpec(machine, backends)
  for (const [key, device] of Object.entries(spec.devices)) {
    if (device.kind !== 'nic') continue
    const from = fields.get(device.backend) ?? pathOf('devices', key)
    checkFilters((field) => `${from}.${field === 'filters' ? 'filter' : field}`, device, spec)
  }
}

/** The machine of the administrator's document as far as no QEMU is asked, and in the words of a specification, with its files. */
export async function asProvided(document: Document) {
  const options = { isPrivileged: true, isKept: true }
  const machine = expand(document, options)
  const fields = fieldsOf(document, options)
  const backends = resolveBackends(machine, undefined, await openCatalogue(), { fields })
  return { machine, specification: specToProto(asSpec(machine, backends)) }
}

/** What changes in the record before a start. Snapshots take the recorded machine whatever an expansion of today would make. */
export async function provideStart(
  machines: HostMachines | undefined,
  record: Readonly<InstanceRecord>,
  { folder, isColdBoot }: { readonly folder: string; readonly isColdBoot: boolean },
): Promise<Partial<InstanceRecord>> {
  const { document } = record
  const { saved } = machinesOf(record) ?? {}
  if (document === undefined || saved === undefined) return {}
  if (machines === undefined) throw new AgentError('UNIMPLEMENTED', 'no machines of documents here')
  const isLatest = document.stability === Stability.LATEST && isColdBoot
  const machine = isLatest ? await expandAnew(machines, document, saved) : saved
  return withStarted(document, machine, await machines.provide(machine, record, folder))
}

async function expandAnew(
  machines: HostMachines,
  { given, isPrivileged }: DocumentRecord,
  saved: Machine,
): Promise<Machine> {
  const expanded = await machines.expand(parseDocument(given), { isPrivileged, uuid: saved.uuid })
  const next = withPlugsOf(expanded, saved)
  // The guest may have set it.
  const { adjustmentSeconds, basis } = saved.clock
  return basis === next.clock.basis ? { ...next, clock: { ...next.clock, adjustmentSeconds } } : next
}

/** For errors: the field of the document that names the volume behind a device, else that of the backend. */
export function volumeField(
  document: DocumentRecord | undefined,
  key: string,
  ...names: readonly string[]
): string {
  const field = namesOf(document).get(key)
  return field === undefined ? pathOf('backends', key, ...names) : `${field}.source`
}

/** The fields of the document for errors. A later version may read it no longer, although it starts the machine. */
function namesOf(document: DocumentRecord | undefined): FieldNames {
  try {
    return fieldsOf(parseDocument(document?.given ?? ''), { isPrivileged: true })
  } catch {
    return new Map()
  }
}
