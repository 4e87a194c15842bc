import type { State } from '../../../gen/microvm/instance/v1/instance.ts'
import type { StepRecord } from '../../../gen/microvm/instance/v1/records.ts'
import { STEPS_OF_LEASE } from '../leases/lease-steps.ts'
import type { Change } from '../registry/registry.ts'
import type { PlannedStep } from './steps.ts'

/** What makes a machine of a saved one. */
export interface SavedStart {
  readonly step: 'resume' | 'clone' | 'revert' | 'incoming'
  readonly words: readonly string[]
  /** Steps and rows of what the machine had. */
  readonly steps: readonly StepRecord[]
  readonly rows: readonly Change[]
  /** Its taps are set up later: once its guest is repaired, or this host is to run it. */
  readonly keepsTapsDown?: boolean
  /** The hardware addresses of cards that its guest has until it is repaired, by those that they have then. */
  readonly macsBefore?: ReadonlyMap<string, string>
  /** Brings the files of the saved machine into the folder of the instance. */
  readonly bring: () => Promise<void>
  /** Gives the machine, which waits for it, the saved state. */
  readonly load: () => Promise<void>
}

export interface StartOptions {
  readonly isNew: boolean
  readonly desired: State
  readonly saved?: SavedStart
}

/** The steps of its taps, for the guest as it is. */
export function tapsBefore(
  planned: readonly PlannedStep[],
  { keepsTapsDown, macsBefore }: SavedStart,
): readonly PlannedStep[] {
  if (keepsTapsDown) return planned.filter(({ step }) => step !== 'tap')
  return planned.map((each) => {
    const mac = each.step === 'tap' ? macsBefore?.get(each.mac ?? '') : undefined
    return mac === undefined ? each : { ...each, mac }
  })
}

/** Files are brought into the folder before anything else is made. */
export function withSaved(
  planned: readonly PlannedStep[],
  { bring, step, words }: SavedStart,
): readonly PlannedStep[] {
  const after = planned.findIndex((each) => each.step === 'folder') + 1
  const rest = planned.slice(after)
  const later = rest.map((each) =>
    STEPS_OF_LEASE.includes(each.step) ? { ...each, awaitsLease: true as const } : each,
  )
  return [...planned.slice(0, after), { step, words, bring }, ...(step === 'incoming' ? later : rest)]
}
