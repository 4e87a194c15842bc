import { AgentError } from '../../../base/errors.ts'
import type { DocumentRecord, InstanceRecord } from '../../../gen/microvm/instance/v1/records.ts'
import { checkLinks, openCatalogue } from '../../catalogue/open-catalogue.ts'
import { resolveBackends } from '../../catalogue/resolve-backends.ts'
import { type Document, parseDocument } from '../../machine/document/document.ts'
import { expand, fieldsOf } from '../../machine/expand.ts'
import type { HostFacts } from '../../machine/features/feature.ts'
import type { Machine } from '../../machine/machine.ts'
import { type AskedQemu, checkCapabilities } from '../../qemu/capabilities.ts'
import type { Backends } from '../../qemu/machine/as-spec.ts'
import { checkImages } from './check-images.ts'
import { machinesOf, withStarted } from './document-record.ts'
import { ownBackends } from './own-files.ts'

/** What this host makes of documents. */
export interface HostMachines {
  /** The whole machine of a document, with what this host adds. */
  expand(
    document: Document,
    options: { readonly isPrivileged: boolean; readonly uuid?: string },
  ): Promise<Machine>
  /** What this host puts behind the machine's devices. */
  backends(machine: Machine, record: Readonly<InstanceRecord>, folder: string): Promise<Backends>
}

export function hostMachines(parts: {
  readonly facts: HostFacts
  readonly qemu: AskedQemu
  /** Of the catalogue. */
  readonly catalogue?: string | undefined
}): HostMachines {
  return {
    expand: async (document, { isPrivileged, uuid }) => {
      const capabilities = await parts.qemu.capabilities()
      const { cpuModels } = capabilities
      const facts = { ...parts.facts, cpuModels, ...(uuid !== undefined && { uuid }) }
      const machine = expand(document, { facts, isPrivileged, isKept: true })
      const { cpu } = machine
      const isNamed = cpu.match === 'exact'
      const expansion = isNamed ? await parts.qemu.expandCpu(cpu.model, cpu.features) : undefined
      const whole = { ...machine, cpu: { ...cpu, ...(expansion && { expansion }) } }
      checkCapabilities(whole, capabilities)
      return whole
    },
    backends: async (machine, { document, properties }, folder) => {
      checkCapabilities(machine, await parts.qemu.capabilities())
      const catalogue = await openCatalogue(parts.catalogue)
      const isPrivileged = document?.isPrivileged ?? false
      const tenant = isPrivileged ? undefined : properties?.tenant
      const found = resolveBackends(machine, tenant, catalogue, namesOf(document))
      await checkLinks(catalogue, found)
      await checkImages(found)
      return { ...found, ...ownBackends(machine, folder) }
    },
  }
}

/** What changes in the record before a start, which uses the recorded machine whatever an expansion of today would make. */
export async function provideStart(
  machines: HostMachines | undefined,
  record: Readonly<InstanceRecord>,
  folder: string,
): Promise<Partial<InstanceRecord>> {
  const { saved } = machinesOf(record) ?? {}
  if (record.document === undefined || saved === undefined) return {}
  if (machines === undefined) throw new AgentError('UNIMPLEMENTED', 'no machines of documents here')
  return withStarted(record.document, saved, await machines.backends(saved, record, folder))
}

/** The fields of the document for errors. A later version may read it no longer, although it starts the machine. */
function namesOf(document: DocumentRecord | undefined): ReadonlyMap<string, string> {
  try {
    return fieldsOf(parseDocument(document?.given ?? ''), { isPrivileged: true })
  } catch {
    return new Map()
  }
}
