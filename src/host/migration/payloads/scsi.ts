import { posix } from 'node:path'
import type { Any } from '../../../gen/google/protobuf/any.ts'
import { Device_Kind } from '../../../gen/microvm/agent/v1/introspection.ts'
import { type Disk, Payload, type Reservation } from '../../../gen/state/host/scsi.ts'
import { kind, pack, unpack } from './kind.ts'
import { keysOf, type MachineFacts, plugStage } from './machine-facts.ts'
import { stageOf } from './stages.ts'

const KIND = kind('scsi', 1, Payload)

/** A disk of the machine, or a partition of one, as the guest has it. */
interface DiskPart {
  /** The key of the disk. */
  readonly disk: string
  /** 0 is the whole disk. */
  readonly partition: number
  readonly name: string
}

/** The storages of the guest that disks provide, by their mount points. */
export function diskReservations(facts: MachineFacts): Record<string, Reservation> {
  const parts = diskParts(facts)
  const reservations = (facts.guest?.mounts.storages ?? []).flatMap((storage) => {
    const { device, mountPoint, references, shared } = storage
    const { disk, partition } = parts.get(device) ?? {}
    if (disk === undefined || partition === undefined) return []
    const stage = stageOf('storage', storage.state)
    return [[mountPoint, { stage, disk, partition, references, shared }] as const]
  })
  return Object.fromEntries(reservations)
}

export function saveDisks(facts: MachineFacts, reservations: Record<string, Reservation>): Any {
  const { layers, lastLayer, snapshots } = facts.record
  const { mounts = [] } = facts.guest?.mounts ?? {}
  const parts = diskParts(facts)
  const keys = keysOf(facts, ({ disk, persistentMemory }) => (disk ?? persistentMemory) !== undefined)
  const disks = keys.map((key): [string, Disk] => {
    const whole = [...parts.values()].find(({ disk, partition }) => disk === key && partition === 0)
    const mounted = mounts.flatMap(({ source, mountPoint, type, readOnly }) => {
      const part = parts.get(source)
      return part?.disk === key ? [{ partition: part.partition, mountPoint, type, readOnly }] : []
    })
    return [key, { ...plugStage(facts, key), guestName: whole?.name ?? '', mounts: mounted }]
  })
  return pack(KIND, {
    ...{ disks: Object.fromEntries(disks), reservations },
    ...{ layers: [...layers], lastLayer, snapshots: [...snapshots] },
  })
}

export function restoreDisks(any: Any | undefined, where: string): Payload {
  return unpack(KIND, any, where)
}

/** The disks and their partitions by their nodes in the guest. A disk is found by its serial number, persistent memory by its slot. */
function diskParts({ record: { specification }, guest }: MachineFacts): ReadonlyMap<string, DiskPart> {
  const blocks = (guest?.devices ?? []).filter((device) => device.kind === Device_Kind.BLOCK)
  const entries = Object.entries(specification?.devices ?? {})
  const memory = entries
    .filter(([, { persistentMemory }]) => persistentMemory !== undefined)
    .sort(([, one], [, other]) => one.slot - other.slot)
    .map(([key], index) => [key, blocks.filter(({ name }) => name === `pmem${index}`)] as const)
  const disks = entries.flatMap(([key, { disk }]) =>
    disk === undefined || disk.serial === ''
      ? []
      : [[key, blocks.filter(({ serial }) => serial === disk.serial)] as const],
  )
  const parts = [...disks, ...memory].flatMap(([key, [whole, ...others]]) => {
    // The guest shows two disks of one number alike.
    const isShared = disks.some(([other, [found]]) => other !== key && found !== undefined && found === whole)
    if (whole === undefined || others.length > 0 || isShared) return []
    const partitions = blocks.filter(({ path }) => posix.dirname(path) === whole.path)
    return [whole, ...partitions].map(({ name, node }): [string, DiskPart] => {
      const number = /\d+$/.exec(name.slice(whole.name.length))?.[0] ?? '0'
      return [node, { disk: key, partition: Number(number), name }]
    })
  })
  return new Map(parts)
}
