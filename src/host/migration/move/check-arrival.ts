import { isDeepStrictEqual } from 'node:util'
import type { MoveEnd, MovePlan } from '../../../gen/microvm/instance/v1/handover.ts'
import { SavedInit, type Specification } from '../../../gen/microvm/instance/v1/instance.ts'
import type { InstanceRecord } from '../../../gen/microvm/instance/v1/records.ts'
import type { MachineInstance } from '../../instance/instance.ts'
import { checkedLease, isFull, isVolume, withoutVolumes } from '../../instance/leases/check-lease.ts'
import { hostsBefore } from '../../instance/moving/moved-away.ts'
import { qemuMisfit } from '../../qemu/qemu-versions.ts'
import type { BulkDisk } from '../bulk/bulk.ts'
import type { HostFacts } from '../manifest.ts'
import { replacedRecord } from '../resume.ts'
import { checkHost, checkOutside } from '../saved-folder.ts'
import { checkState, recordIn } from '../state-file.ts'
import { filesNamedBy } from './ask-target.ts'
import { flattened } from './disks-along.ts'
import { contentField, HANDOVER_VERSION, refused } from './move-host.ts'

/** Who has sent it, for errors. */
export const SOURCE = 'the source'

/** Throws FAILED_PRECONDITION for what would be another machine here. */
export function checkPlan({ acceleration, cpu, version }: MovePlan, facts: HostFacts): void {
  if (version !== HANDOVER_VERSION) throw refused(`handover: version ${version}, want ${HANDOVER_VERSION}`)
  // A named CPU model says what the guest sees, and QEMU here whether it has that.
  checkHost(SOURCE, { host: { qemu: facts.qemu, acceleration, cpu: cpu || facts.cpu } }, facts)
}

/** The same of QEMU, by the rule by which a controller chooses a host. */
export function checkQemu(
  plan: Pick<MovePlan, 'qemu'>,
  { specification }: Pick<InstanceRecord, 'specification'>,
  facts: Pick<HostFacts, 'qemu'>,
): void {
  const [from, to] = [plan, facts].map(({ qemu }) => qemu.replace(/^QEMU /, ''))
  const misfit = qemuMisfit({ from: from ?? '', to: to ?? '', machine: specification?.board?.machine ?? '' })
  if (misfit !== undefined) throw refused(`handover: this host ${misfit}`)
}

/** The same of its files. Only those are looked at that the machine has, whose owner was checked. */
export async function checkPlanFiles(
  { files }: MovePlan,
  { document, properties, specification, target }: InstanceRecord,
  along: readonly BulkDisk[],
): Promise<void> {
  const replaced = Object.keys(target?.replaceComponents ?? {}).map(contentField)
  const here = files.filter(
    ({ backend, field }) => !along.some(({ key }) => key === backend) && !replaced.includes(field),
  )
  const named =
    specification === undefined
      ? []
      : filesNamedBy(withoutVolumes(specification, { properties }), { document })
  const isOf = (name: (typeof named)[number]) => (file: (typeof files)[number]) =>
    file.field === name.field && file.backend === name.backend && file.path === name.path
  const other = here.find((file) => !named.some((name) => isOf(name)(file)))
  if (other !== undefined) throw refused(`plan.files: ${other.field}: of no file that the machine has`)
  for (const name of named) {
    const file = here.find(isOf(name))
    if (file === undefined) continue
    const saved = { ...name, digest: file.digest, sizeBytes: Number(file.sizeBytes), changed: '' }
    await checkOutside(saved, name.path, 'shared')
  }
}

/** What the record of the instance begins with. Throws for what EnsureInstance would refuse. */
export async function recordOf(
  { key, recorded, record: { instanceId, properties, runId, target, uid, createdMs } }: MachineInstance,
  { generationId, us }: MovePlan,
  { envelope, along }: { readonly envelope: Uint8Array; readonly along: readonly string[] },
): Promise<InstanceRecord> {
  const { replaceComponents = {} } = target ?? {}
  const known = flattened(recordIn(envelope, SOURCE), along, target)
  const record = replacedRecord(known, SavedInit.fromPartial({ replaceComponents }), 'migration_target')
  await checkState(record, { folder: SOURCE, manifest: { files: {}, streams: [], unplugged: '' } })
  const lease = checkedLease(known.properties?.lease) ?? properties?.lease
  if (isFull(lease)) checkVolumes(known, replaceComponents)
  const own = {
    instanceId,
    properties: properties && { ...properties, lease },
    runId,
    target,
    uid,
    createdMs,
    cid: 0,
    cameFrom: await hostsBefore(recorded, key, {
      from: us?.podName.split('/')[0] ?? '',
      tenant: properties?.tenant ?? '',
    }),
  }
  return { ...record, ...own, generationId, operations: [], resets: [] }
}

/** Throws FAILED_PRECONDITION for another file in place of a volume. */
function checkVolumes(
  { properties, specification }: InstanceRecord,
  replaced: SavedInit['replaceComponents'],
): void {
  const all = Object.entries(specification?.backends ?? {})
  const other = all.find(
    ([key, backend]) => isVolume(backend, properties?.lease) && replaced[key] !== undefined,
  )
  if (other !== undefined)
    throw refused(`migration_target.replace_components.${other[0]}: its host goes on serving it, want none`)
}

/** What is different here, without the backends of devices that the machine has lost for the move. */
export function stillThere(
  { record: { target } }: MachineInstance,
  { specification }: InstanceRecord,
): SavedInit {
  const all = Object.entries(target?.replaceComponents ?? {})
  const present = all.filter(([key]) => specification?.backends[key] !== undefined)
  return SavedInit.fromPartial({ replaceComponents: Object.fromEntries(present) })
}

/** Throws unless the machine is still the one that QEMU was started for. */
export async function checkArrived(
  record: InstanceRecord,
  { streams, unplugged }: MoveEnd,
  started: Specification | undefined,
): Promise<void> {
  const manifest = {
    ...{ files: {}, unplugged: Buffer.from(unplugged).toString('base64') },
    streams: streams.map(({ live: isLive, ...stream }) => ({ ...stream, isLive })),
  }
  await checkState(record, { folder: SOURCE, manifest })
  if (!isDeepStrictEqual(record.specification, started))
    throw refused('handover: the machine has another specification than the handover began with')
}
