import { messageOf } from '../../base/errors.ts'
import type { Files } from '../../os/os.ts'
import type { BootContext, StepOutcome } from './step.ts'

const DEFAULT_HOSTNAME = 'localhost'

/** One label of a host name (RFC 1123): letters, digits and inner hyphens, at most 63. */
const LABEL = /^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/i

/**
 * Names the guest as the host does (`given`), or else as /etc/hostname says (spec A.8). A guest without its name still
 * works: failures are logged.
 */
export async function setHostname({ os, log }: BootContext, given: string | undefined): Promise<StepOutcome> {
  if (given !== undefined && given !== '' && !LABEL.test(given)) {
    log.warn('the name in the VM metadata is no host name', { name: given })
  }
  try {
    const wanted = given !== undefined && LABEL.test(given) ? given : await wantedHostname(os.files)
    const current = (await os.files.readText('/proc/sys/kernel/hostname')).trim()
    if (current === wanted) return 'already'
    os.system.setHostname(wanted)
    return 'done'
  } catch (error) {
    log.warn('hostname not set', { error: messageOf(error) })
    return 'already'
  }
}

/** The first word of /etc/hostname. */
async function wantedHostname(files: Files): Promise<string> {
  if ((await files.stat('/etc/hostname')) === undefined) return DEFAULT_HOSTNAME
  const [first = ''] = (await files.readText('/etc/hostname')).trim().split(/\s+/)
  return first === '' ? DEFAULT_HOSTNAME : first
}
