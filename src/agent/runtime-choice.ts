import type { RuntimeChoice } from '../handlers/sandbox/dependencies.ts'

/** The paths of the two runtimes in Debian's packages. */
const KNOWN: Readonly<Record<RuntimeChoice['kind'], string>> = {
  runc: '/usr/sbin/runc',
  crun: '/usr/bin/crun',
}

/** `setting` is a name or the absolute path of a binary. */
export function runtimeChoice(setting: string): RuntimeChoice {
  if (setting === 'runc' || setting === 'crun') return { kind: setting, binary: KNOWN[setting] }
  const name = setting.slice(setting.lastIndexOf('/') + 1)
  return { kind: name.startsWith('crun') ? 'crun' : 'runc', binary: setting }
}
