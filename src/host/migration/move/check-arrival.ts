import { isDeepStrictEqual } from 'node:util'
import type { MoveEnd, MovePlan } from '../../../gen/microvm/instance/v1/handover.ts'
import {
  type MigrationTarget,
  SavedInit,
  type Specification,
} from '../../../gen/microvm/instance/v1/instance.ts'
import type { InstanceRecord } from '../../../gen/microvm/instance/v1/records.ts'
import type { MachineInstance } from '../../instance/instance.ts'
import { checkedLease, isFull } from '../../instance/leases/check-lease.ts'
import type { BulkDisk } from '../bulk/bulk.ts'
import type { HostFacts } from '../manifest.ts'
import { replacedRecord } from '../resume.ts'
import { checkHost, checkOutside } from '../saved-folder.ts'
import { checkState, recordIn } from '../state-file.ts'
import { contentField, HANDOVER_VERSION, refused } from './move-host.ts'

/** Who has sent it, for errors. */
export const SOURCE = 'the source'

/** Throws FAILED_PRECONDITION for what would be another machine here. */
export async function checkPlan(
  plan: MovePlan,
  facts: HostFacts,
  { along, target }: { readonly along: readonly BulkDisk[]; readonly target: MigrationTarget | undefined },
): Promise<void> {
  const { acceleration, cpu, files, qemu, version } = plan
  if (version !== HANDOVER_VERSION) throw refused(`handover: version ${version}, want ${HANDOVER_VERSION}`)
  checkHost(SOURCE, { host: { qemu, acceleration, cpu } }, facts)
  const replaced = Object.keys(target?.replaceComponents ?? {}).map(contentField)
  const here = files.filter(
    ({ backend, field }) => !along.some(({ key }) => key === backend) && !replaced.includes(field),
  )
  for (const { backend, digest, field, path, sizeBytes } of here)
    await checkOutside(
      { field, backend, path, digest, sizeBytes: Number(sizeBytes), changed: '' },
      path,
      'shared',
    )
}

/** What the record of the instance begins with. Throws for what EnsureInstance would refuse. */
export async function recordOf(
  { record: { instanceId, properties, runId, target, uid, createdMs } }: MachineInstance,
  { generationId }: MovePlan,
  envelope: Uint8Array,
): Promise<InstanceRecord> {
  const { replaceComponents = {} } = target ?? {}
  const known = recordIn(envelope, SOURCE)
  const record = replacedRecord(known, SavedInit.fromPartial({ replaceComponents }), 'migration_target')
  await checkState(record, { folder: SOURCE, manifest: { files: {}, streams: [], unplugged: '' } })
  const lease = checkedLease(known.properties?.lease) ?? properties?.lease
  if (isFull(lease)) throw refused('properties.lease: LM_FULL_LEASES does not move')
  const own = {
    instanceId,
    properties: properties && { ...properties, lease },
    runId,
    target,
    uid,
    createdMs,
    cid: 0,
  }
  return { ...record, ...own, generationId, operations: [], resets: [] }
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
