import type { Specification } from '../../../gen/microvm/instance/v1/instance.ts'
import type { InstanceRecord, StepRecord } from '../../../gen/microvm/instance/v1/records.ts'
import type { Compatibility, Ring, Stream } from '../../../gen/state/host/vm.ts'
import type { GuestFacts } from './ask-guest.ts'

/** What is saved of a machine: all that its controllers know. */
export interface MachineFacts {
  readonly record: Readonly<InstanceRecord>
  readonly steps: readonly StepRecord[]
  readonly streams: readonly Stream[]
  /** As the holder has them once the guest stands still. */
  readonly rings: readonly Ring[]
  /** Undefined when no QEMU ran. */
  readonly compatibility: Compatibility | undefined
  /** Undefined where no agent was asked. */
  readonly guest: GuestFacts | undefined
  /** Milliseconds since 1970. */
  readonly savedMs: bigint
}

/** Has the values of the stages of disks, shares and cards, which are those of a plug. */
export const PlugStage = { PLUGGING: 0, PRESENT: 1, LEAVING: 2 } as const

/** Keys of devices of a kind. */
export function keysOf(
  { record: { specification } }: Pick<MachineFacts, 'record'>,
  isWanted: (device: Specification['devices'][string]) => boolean,
): readonly string[] {
  return Object.entries(specification?.devices ?? {}).flatMap(([key, device]) =>
    isWanted(device) ? [key] : [],
  )
}

export function plugStage(
  { record: { leaving, leavingMs }, steps }: Pick<MachineFacts, 'record' | 'steps'>,
  key: string,
): { readonly stage: (typeof PlugStage)[keyof typeof PlugStage]; readonly leavingMs: bigint | undefined } {
  if (leaving.includes(key)) {
    const time = Object.hasOwn(leavingMs, key) ? leavingMs[key] : undefined
    return { stage: PlugStage.LEAVING, leavingMs: time }
  }
  const isPlugged = !steps.some(({ step, words }) => step === 'plug' && words[0] === key)
  return { stage: isPlugged ? PlugStage.PRESENT : PlugStage.PLUGGING, leavingMs: undefined }
}

/** What a payload of devices says of a plug. */
export interface RestoredPlugs {
  /** Keys of devices that were being plugged in. */
  readonly plugging: readonly string[]
  readonly leaving: readonly string[]
  readonly leavingMs: Readonly<Record<string, bigint>>
}

export function restoredPlugs(
  devices: Readonly<Record<string, { readonly stage: number; readonly leavingMs?: bigint | undefined }>>,
): RestoredPlugs {
  const entries = Object.entries(devices)
  const keys = (wanted: number) => entries.flatMap(([key, { stage }]) => (stage === wanted ? [key] : []))
  const times = entries.flatMap(([key, { leavingMs }]) => (leavingMs === undefined ? [] : [[key, leavingMs]]))
  return {
    plugging: keys(PlugStage.PLUGGING),
    leaving: keys(PlugStage.LEAVING),
    leavingMs: Object.fromEntries(times),
  }
}
