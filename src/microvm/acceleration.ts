import { UsageError } from './command-line/parse.mjs'

/** Hardware virtualisation, or QEMU's emulation. */
export type Acceleration = 'kvm' | 'tcg'

/** What the choice depends on. */
export interface AccelerationFacts {
  /** Text of /proc/cpuinfo. */
  readonly cpuinfo: string
  /** Whether /dev/kvm can be opened for reading and writing. */
  readonly kvmUsable: boolean
  /** MICROVM_ACCEL, if set. */
  readonly override: string | undefined
}

/**
 * KVM only when the CPU itself has virtualisation: a /dev/kvm without it can be opened, makes a machine, and then
 * hangs every stock kernel. Throws {@link UsageError} for an unknown override.
 */
export function chooseAcceleration(facts: AccelerationFacts): Acceleration {
  const { override } = facts
  if (override !== undefined && override !== '') {
    if (override === 'kvm' || override === 'tcg') return override
    throw new UsageError(`MICROVM_ACCEL=${override}: choose kvm or tcg`)
  }
  const hardware = /^flags\s*:.*\b(vmx|svm)\b/m.test(facts.cpuinfo)
  return hardware && facts.kvmUsable ? 'kvm' : 'tcg'
}
