import { AgentError, messageOf } from '../base/errors.ts'
import type { Files } from '../os/os.ts'
import { blockNode } from './block-node.ts'
import { type HotplugDependencies, type Probe, waitForDevice } from './wait-for-device.ts'

/** Where a SCSI disk is behind its controller. */
export interface ScsiAddress {
  readonly target: number
  readonly lun: number
}

const HOSTS = '/sys/class/scsi_host'
const DEVICES = '/sys/bus/scsi/devices'

/** Parses `ID:LUN`, both decimal. Throws INVALID_ARGUMENT naming the text. */
export function parseScsiAddress(text: string): ScsiAddress {
  const [, target, lun] = /^(\d{1,5}):(\d{1,5})$/.exec(text) ?? []
  if (target === undefined || lun === undefined) {
    throw new AgentError('INVALID_ARGUMENT', `SCSI address '${text}' is not ID:LUN in decimal`)
  }
  return { target: Number(target), lun: Number(lun) }
}

/**
 * The device node of a SCSI disk, waited for if it is not there yet. Controllers do not tell by themselves of disks
 * that come, so each is asked to look at the address (spec F.2). Throws INTERNAL after the time-out, or what `signal`
 * is aborted with.
 */
export function waitForScsiDisk(
  dependencies: HotplugDependencies,
  { target, lun }: ScsiAddress,
  signal: AbortSignal,
): Promise<string> {
  const { files } = dependencies
  const ending = `:0:${target}:${lun}`
  const scanned = new Set<string>()
  const look = () => findDisk(files, ending)
  return waitForDevice(
    dependencies,
    {
      description: `SCSI disk ${target}:${lun}`,
      probe: async () => {
        const first = await look()
        if ('found' in first) return first
        const failures = await scan(files, { target, lun }, scanned)
        const second = await look()
        if ('found' in second || failures.length === 0) return second
        return { missing: `${second.missing} (${failures.join(', ')})` }
      },
      concerns: ({ action, subsystem, devicePath }) =>
        action === 'add' &&
        (subsystem === 'scsi_host' || (subsystem === 'block' && devicePath.includes(`${ending}/block/`))),
      candidates: () => files.list(DEVICES),
      rescan: async () => scanned.clear(),
    },
    signal,
  )
}

async function findDisk(files: Files, ending: string): Promise<Probe<string>> {
  let missing = `${DEVICES}/*${ending}`
  for (const device of await files.list(DEVICES)) {
    if (!device.endsWith(ending) || !/^\d+:/.test(device)) continue
    const [disk] = await files.list(`${DEVICES}/${device}/block`)
    if (disk !== undefined) return blockNode(files, `${DEVICES}/${device}/block/${disk}`)
    // Another controller may have a disk at the address.
    missing = `${DEVICES}/${device}/block/*`
  }
  return { missing }
}

/** Asks each controller once. Some cannot have such an address, so their failures only tell. */
async function scan(
  files: Files,
  { target, lun }: ScsiAddress,
  scanned: Set<string>,
): Promise<readonly string[]> {
  const failures: string[] = []
  for (const host of await files.list(HOSTS)) {
    if (scanned.has(host)) continue
    scanned.add(host)
    const asking = files.write(`${HOSTS}/${host}/scan`, `0 ${target} ${lun}`)
    await asking.catch((error) => failures.push(messageOf(error)))
  }
  return failures
}
