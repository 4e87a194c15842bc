import { existsSync, readFileSync } from 'node:fs'

/** How fast this machine's time stamp counter runs, which QEMU's emulated one follows, in kHz; undefined when not known. */
export function hostTscKhz(): number | undefined {
  return tscKhz(readFileSync('/proc/cpuinfo', 'utf8'), existsSync('/sys/devices/system/cpu/cpu0/cpufreq'))
}

/**
 * The rate that `cpuinfo` (text of /proc/cpuinfo) tells. Where the kernel changes the CPU's clock (`scaled`), the text has
 * the clock of this moment instead, and the counter's rate is not known.
 */
export function tscKhz(cpuinfo: string, scaled: boolean): number | undefined {
  const mhz = /^cpu MHz\s*:\s*(\d+\.\d+)$/m.exec(cpuinfo)?.[1]
  const constant = /^flags\s*:.*\bconstant_tsc\b/m.test(cpuinfo)
  return mhz === undefined || scaled || !constant ? undefined : Math.round(Number(mhz) * 1000)
}
