import { AgentError, messageOf } from '../base/errors.ts'
import type { Files } from '../os/files/files.ts'
import { getBlockNode } from './sysfs.ts'
import { type Hotplug, type Probe, waitForDevice } from './wait-for-device.ts'

export interface ScsiAddress {
  readonly target: number
  readonly lun: number
}

const HOSTS = '/sys/class/scsi_host'
const DEVICES = '/sys/bus/scsi/devices'

/** A probe does not wait longer for scans, so that a controller that hangs does not hide the disk of another. */
const SCAN_TIMEOUT_MS = 500

/** Parses `ID:LUN`, both decimal. Throws INVALID_ARGUMENT. */
export function parseScsiAddress(text: string): ScsiAddress {
  const [, target, lun] = /^(\d{1,5}):(\d{1,5})$/.exec(text) ?? []
  if (target === undefined || lun === undefined) {
    throw new AgentError('INVALID_ARGUMENT', `SCSI address "${text}": want ID:LUN in decimal`)
  }
  return { target: Number(target), lun: Number(lun) }
}

/**
 * Returns the device node. Makes each controller scan the address, because controllers do not announce new disks. Throws
 * FAILED_PRECONDITION when several have a disk at the address, INTERNAL after the timeout, or the reason of `signal`.
 */
export function waitForScsiDisk(
  dependencies: Hotplug,
  address: ScsiAddress,
  signal: AbortSignal,
): Promise<string> {
  const { files } = dependencies
  const name = `${address.target}:${address.lun}`
  const ending = `:0:${name}`
  const controllers = new Controllers(dependencies, address)
  const probe = () => getDisk(files, name)
  return waitForDevice(
    dependencies,
    {
      description: `SCSI disk ${name}`,
      probe: async () => {
        const first = await probe()
        if ('found' in first) return first
        const failures = await controllers.scan()
        const second = await probe()
        if ('found' in second || failures.length === 0) return second
        return { missing: `${second.missing} (${failures.join(', ')})` }
      },
      matches: ({ action, subsystem, devicePath }) =>
        action === 'add' &&
        (subsystem === 'scsi_host' || (subsystem === 'block' && devicePath.includes(`${ending}/block/`))),
      candidates: () => files.list(DEVICES),
      rescan: async () => controllers.scanAgain(),
    },
    signal,
  )
}

/** The host names no controller, so two disks at the address are an error. */
async function getDisk(files: Files, address: string): Promise<Probe<string>> {
  const holders: string[] = []
  let missing = `${DEVICES}/*:0:${address}`
  for (const device of await files.list(DEVICES)) {
    if (!/^\d+:/.test(device) || !device.endsWith(`:0:${address}`)) continue
    const [disk] = await files.list(`${DEVICES}/${device}/block`)
    if (disk !== undefined) holders.push(`${DEVICES}/${device}/block/${disk}`)
    // Another controller may have a disk at the address.
    else missing = `${DEVICES}/${device}/block/*`
  }
  const [holder, ...others] = holders
  if (holder === undefined) return { missing }
  if (others.length === 0) return getBlockNode(files, holder)
  const text = `SCSI disk ${address} is at more than one controller: ${holders.join(', ')}`
  throw new AgentError('FAILED_PRECONDITION', text)
}

/** Makes each SCSI controller scan an address once. */
class Controllers {
  readonly #dependencies: Pick<Hotplug, 'files' | 'clock'>
  readonly #text: string
  readonly #scanned = new Set<string>()
  readonly #scanning = new Set<string>()
  readonly #failures = new Map<string, string>()

  constructor(dependencies: Pick<Hotplug, 'files' | 'clock'>, { target, lun }: ScsiAddress) {
    this.#dependencies = dependencies
    this.#text = `0 ${target} ${lun}`
  }

  /** Scans new controllers. Returns the errors of all, and throws none: some controllers cannot have such an address. */
  async scan(): Promise<readonly string[]> {
    const { files, clock } = this.#dependencies
    const hosts = (await files.list(HOSTS)).filter((host) => !this.#scanned.has(host))
    const scans = Promise.all(hosts.map((host) => this.#scan(host)))
    const ended = new AbortController()
    const late = clock.sleep(SCAN_TIMEOUT_MS, ended.signal)
    // The sleep rejects when it is aborted below.
    late.catch(() => {})
    await Promise.race([scans, late])
    ended.abort()
    return [...this.#failures.values(), ...[...this.#scanning].map((host) => `${host} is still scanning`)]
  }

  /** Makes the next {@link scan} scan all controllers again, except those that are still scanning. */
  scanAgain(): void {
    this.#scanned.clear()
    for (const host of this.#scanning) this.#scanned.add(host)
  }

  /** Never rejects. */
  async #scan(host: string): Promise<void> {
    this.#scanned.add(host)
    this.#scanning.add(host)
    this.#failures.delete(host)
    try {
      await this.#dependencies.files.write(`${HOSTS}/${host}/scan`, this.#text)
    } catch (error) {
      this.#failures.set(host, messageOf(error))
    } finally {
      this.#scanning.delete(host)
    }
  }
}
