import { METADATA_ITEM } from '../../../base/vm-metadata/point-to-point.ts'
import type { Backend } from '../../../gen/microvm/instance/v1/instance.ts'
import { specificationOf } from '../../instance/devices/plug.ts'
import type { MachineInstance } from '../../instance/instance.ts'
import { isFull } from '../../instance/leases/check-lease.ts'
import { pathOf } from '../../spec/component-path.ts'
import { refused } from './move-host.ts'

/** Throws naming what keeps the machine on this host, besides what keeps it from being saved. */
export function checkMove(instance: MachineInstance): void {
  const [first] = obstaclesOf(instance)
  if (first !== undefined) throw refused(first)
}

/** What keeps the machine on this host, each with its field. */
export function obstaclesOf(instance: MachineInstance): readonly string[] {
  const { record } = instance
  const { backends, devices } = specificationOf(instance)
  // A target makes them of its own VM_SPEC.
  const metadata = Object.values(devices).flatMap(({ backend, firmwareItem }) =>
    firmwareItem?.name === METADATA_ITEM ? [backend] : [],
  )
  const snapshots = record.snapshots.map(({ name }) => name).join()
  const remedy = record.clone ? 'and a clone keeps its own' : 'want them removed (RemoveSnapshot)'
  return [
    ...(snapshots === '' ? [] : [`snapshots: ${snapshots} would be lost, ${remedy}`]),
    ...(isFull(record.properties?.lease) ? ['properties.lease: the run here is the one that has it'] : []),
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
