import { errnoOf } from '../../base/errors.ts'
import type { Process } from '../../gen/oci.ts'
import type { ProcessSupport } from '../../oci/guest-support.ts'
import { nofileOf } from '../../oci/rlimits.ts'
import type { Os } from '../../os/os.ts'

/** One line for each profile: `NAME (MODE)`. Present with AppArmor in the kernel and securityfs mounted. */
const APPARMOR_PROFILES = '/sys/kernel/security/apparmor/profiles'
/** Present when a policy can be enforced: selinuxfs is mounted. */
const SELINUX = '/sys/fs/selinux/enforce'
const MAX_OPEN_FILES = '/proc/sys/fs/nr_open'

/** What the guest's kernel supports. Looks up only what `asked` names. */
export async function processSupport(
  { files, scratch }: Pick<Os, 'files' | 'scratch'>,
  asked: ReturnType<typeof askedOf>,
): Promise<ProcessSupport> {
  return {
    apparmorProfiles: asked.apparmor ? await loadedProfiles(files) : new Set(),
    hasSelinux: asked.selinux && (await files.stat(SELINUX)) !== undefined,
    maxOpenFiles: asked.nofile ? BigInt((await scratch.readText(MAX_OPEN_FILES)).trim()) : 0n,
  }
}

export function askedOf({ ApparmorProfile, SelinuxLabel, Rlimits }: Process) {
  return { apparmor: ApparmorProfile !== '', selinux: SelinuxLabel !== '', nofile: nofileOf(Rlimits) }
}

async function loadedProfiles(files: Os['files']): Promise<Set<string>> {
  try {
    const lines = (await files.readText(APPARMOR_PROFILES)).split('\n')
    return new Set(lines.map((line) => line.replace(/ \(\w+\)$/, '')).filter((name) => name !== ''))
  } catch (error) {
    if (errnoOf(error) !== 'ENOENT') throw error
    return new Set()
  }
}
