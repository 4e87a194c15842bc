import type { RuntimeChoice } from '../handlers/sandbox/dependencies.ts'

/** Where Debian's packages put the two runtimes. */
const KNOWN: Readonly<Record<RuntimeChoice['kind'], string>> = {
  runc: '/usr/sbin/runc',
  crun: '/usr/bin/crun',
}

/** The setting `agent.runtime` (a name, or the absolute path of a binary) as the containers need it. */
export function runtimeChoice(setting: string): RuntimeChoice {
  if (setting === 'runc' || setting === 'crun') return { kind: setting, binary: KNOWN[setting] }
  const name = setting.slice(setting.lastIndexOf('/') + 1)
  return { kind: name.startsWith('crun') ? 'crun' : 'runc', binary: setting }
}
