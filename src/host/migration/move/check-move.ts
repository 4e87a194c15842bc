import { METADATA_ITEM } from '../../../base/vm-metadata/point-to-point.ts'
import type { Backend } from '../../../gen/microvm/instance/v1/instance.ts'
import { specificationOf } from '../../instance/devices/plug.ts'
import type { MachineInstance } from '../../instance/instance.ts'
import { isVolume } from '../../instance/leases/check-lease.ts'
import { pathOf } from '../../spec/component-path.ts'
import { type MoveHost, refused } from './move-host.ts'

/** Throws naming what keeps the machine on this host, besides what keeps it from being saved. */
export function checkMove(instance: MachineInstance, host: Pick<MoveHost, 'id' | 'only'>): void {
  const [first] = obstaclesOf(instance, host)
  if (first !== undefined) throw refused(first)
}

/** What keeps the machine on this host, each with its field. */
export function obstaclesOf(
  instance: MachineInstance,
  { id, only }: Pick<MoveHost, 'id' | 'only'>,
): readonly string[] {
  const { record } = instance
  const { backends, devices } = specificationOf(instance)
  // A target makes them of its own VM_SPEC.
  const metadata = Object.values(devices).flatMap(({ backend, firmwareItem }) =>
    firmwareItem?.name === METADATA_ITEM ? [backend] : [],
  )
  const volumes = Object.entries(backends).flatMap(([key, backend]) => {
    if (!isVolume(backend, record.properties?.lease)) return []
    const { encryption, host } = backend.file
    // QEMU would read its header before it may have the disk there.
    if (encryption !== undefined) return [`${pathOf('backends', key)}: encrypted, and served by its host`]
    const isOwn = host === '' || host === id
    return only && isOwn ? [`${pathOf('backends', key)}: served by this hypervisor, which would end`] : []
  })
  const snapshots = record.snapshots.map(({ name }) => name).join()
  const remedy = record.clone ? 'and a clone keeps its own' : 'want them removed (RemoveSnapshot)'
  return [
    ...(snapshots === '' ? [] : [`snapshots: ${snapshots} would be lost, ${remedy}`]),
    ...volumes,
    ...Object.entries(backends).flatMap(([key, backend]) => {
      const kind = OBSTACLES.find((name) => backend[name] !== undefined)
      // Another one's is compared at the target.
      const isCompared = kind === 'content' && (record.document === undefined || metadata.includes(key))
      return kind === undefined || isCompared ? [] : [`${pathOf('backends', key)}: ${REASONS[kind]}`]
    }),
  ]
}

const REASONS = {
  content: 'a file of this host, which the target does not have',
  passt: 'its connections would break: passt has them in its memory',
} as const satisfies Partial<Record<keyof Backend, string>>

const OBSTACLES = Object.keys(REASONS) as readonly (keyof typeof REASONS)[]
