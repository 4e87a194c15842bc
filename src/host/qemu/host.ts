import { accessSync, existsSync, readFileSync } from 'node:fs'
import { AgentError } from '../../base/errors.ts'

/** Hardware virtualisation, or QEMU's emulation. */
export type Acceleration = 'kvm' | 'tcg'

export interface AccelerationFacts {
  readonly cpuinfo: string
  /** Whether /dev/kvm can be opened for reading and writing. */
  readonly kvmUsable: boolean
  /** MICROVM_ACCEL, if set. */
  readonly override: string | undefined
}

/**
 * `kvm` when the CPU itself has virtualisation, else `tcg`: without it a /dev/kvm can be opened and makes a machine, but
 * then every stock kernel hangs. Throws INVALID_ARGUMENT for an unknown override.
 */
export function chooseAcceleration(facts: AccelerationFacts): Acceleration {
  const { override } = facts
  if (override !== undefined && override !== '') {
    if (override === 'kvm' || override === 'tcg') return override
    throw new AgentError('INVALID_ARGUMENT', `MICROVM_ACCEL=${override}: choose kvm or tcg`)
  }
  const hardware = /^flags\s*:.*\b(vmx|svm)\b/m.test(facts.cpuinfo)
  return hardware && facts.kvmUsable ? 'kvm' : 'tcg'
}

/** The rate of this machine's time stamp counter, which QEMU's emulated one follows, in kHz; undefined when unknown. */
export function hostTscKhz(): number | undefined {
  return tscKhz(readFileSync('/proc/cpuinfo', 'utf8'), existsSync('/sys/devices/system/cpu/cpu0/cpufreq'))
}

/**
 * The rate of the time stamp counter in kHz by `cpuinfo` (text of /proc/cpuinfo). Where the kernel changes the CPU's
 * clock (`scaled`), the text has the present clock instead, and the rate is unknown.
 */
export function tscKhz(cpuinfo: string, scaled: boolean): number | undefined {
  const mhz = /^cpu MHz\s*:\s*(\d+\.\d+)$/m.exec(cpuinfo)?.[1]
  const constant = /^flags\s*:.*\bconstant_tsc\b/m.test(cpuinfo)
  return mhz === undefined || scaled || !constant ? undefined : Math.round(Number(mhz) * 1000)
}

/** Whether this process may access the file at `path` by `mode` (`constants.R_OK` …). False when it does not exist. */
export function hasAccess(path: string, mode: number): boolean {
  try {
    accessSync(path, mode)
    return true
  } catch {
    return false
  }
}
