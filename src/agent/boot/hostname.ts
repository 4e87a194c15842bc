import { messageOf } from '../../base/errors.ts'
import type { Files } from '../../os/files/files.ts'
import type { BootContext, StepOutcome } from './step.ts'

const DEFAULT_HOSTNAME = 'localhost'

/**
 * Names the guest: as its metadata says (`given`), which is noted, or else as /etc/hostname does (spec A.8). It still
 * works without: failures are logged.
 */
export async function setHostname(context: BootContext, given: string | undefined): Promise<StepOutcome> {
  const { os, log, networkRecord } = context
  try {
    const wanted = given ?? (await wantedHostname(os.files))
    const current = (await os.files.readText('/proc/sys/kernel/hostname')).trim()
    if (current !== wanted) os.system.setHostname(wanted)
    if (given !== undefined) {
      networkRecord.note('metadata', [{ kind: 'hostname', subject: 'hostname', value: given }])
    }
    return current === wanted ? 'already' : 'done'
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
