import { AgentError } from '../../base/errors.ts'
import type { MountFlag } from '../../os/files/mounts.ts'

export interface MountOptions {
  readonly flags: readonly MountFlag[]
  /** The options that the file system itself reads, joined by commas. */
  readonly data: string
}

const SETTING: ReadonlyMap<string, readonly MountFlag[]> = new Map([
  ['bind', ['bind']],
  ['dirsync', ['dirsync']],
  ['iversion', ['i_version']],
  ['mand', ['mandlock']],
  ['noatime', ['noatime']],
  ['nodev', ['nodev']],
  ['nodiratime', ['nodiratime']],
  ['noexec', ['noexec']],
  ['nosuid', ['nosuid']],
  ['private', ['private']],
  ['rbind', ['bind', 'rec']],
  ['relatime', ['relatime']],
  ['remount', ['remount']],
  ['ro', ['ro']],
  ['rprivate', ['private', 'rec']],
  ['rshared', ['shared', 'rec']],
  ['rslave', ['slave', 'rec']],
  ['runbindable', ['unbindable', 'rec']],
  ['shared', ['shared']],
  ['silent', ['silent']],
  ['slave', ['slave']],
  ['strictatime', ['strictatime']],
  ['sync', ['synchronous']],
  ['unbindable', ['unbindable']],
])

/** Options that clear the flags of earlier options. */
const CLEARING: ReadonlyMap<string, readonly MountFlag[]> = new Map([
  ['async', ['synchronous']],
  ['atime', ['noatime']],
  ['defaults', []],
  ['dev', ['nodev']],
  ['diratime', ['nodiratime']],
  ['exec', ['noexec']],
  ['loud', ['silent']],
  ['noiversion', ['i_version']],
  ['nomand', ['mandlock']],
  ['norelatime', ['relatime']],
  ['nostrictatime', ['strictatime']],
  ['rw', ['ro']],
  ['suid', ['nosuid']],
])

/** Throws INVALID_ARGUMENT for `loop`. */
export function parseMountOptions(options: readonly string[]): MountOptions {
  const flags = new Set<MountFlag>()
  const data: string[] = []
  for (const option of options) {
    if (option === 'loop') throw new AgentError('INVALID_ARGUMENT', 'mount option loop: not supported')
    const set = SETTING.get(option)
    const clear = CLEARING.get(option)
    if (set === undefined && clear === undefined) data.push(option)
    for (const flag of set ?? []) flags.add(flag)
    for (const flag of clear ?? []) flags.delete(flag)
  }
  return { flags: [...flags], data: data.join(',') }
}
