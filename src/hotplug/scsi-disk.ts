import { AgentError, messageOf } from '../base/errors.ts'
import type { Files } from '../os/files/files.ts'
import { blockNode } from './block-node.ts'
import { type HotplugDependencies, type Probe, waitForDevice } from './wait-for-device.ts'

/** Where a SCSI disk is behind its controller. */
export interface ScsiAddress {
  readonly target: number
  readonly lun: number
}

const HOSTS = '/sys/class/scsi_host'
const DEVICES = '/sys/bus/scsi/devices'

/** How long a look waits for controllers: one that hangs must not hide the disk of another. */
const SCAN_MS = 500

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
 * that come, so each is asked to look at the address (spec F.2). Throws FAILED_PRECONDITION when disks of several
 * controllers have the address, INTERNAL after the time-out, or what `signal` is aborted with.
 */
export function waitForScsiDisk(
  dependencies: HotplugDependencies,
  address: ScsiAddress,
  signal: AbortSignal,
): Promise<string> {
  const { files } = dependencies
  const name = `${address.target}:${address.lun}`
  const ending = `:0:${name}`
  const controllers = new Controllers(dependencies, address)
  const look = () => findDisk(files, name)
  return waitForDevice(
    dependencies,
    {
      description: `SCSI disk ${name}`,
      probe: async () => {
        const first = await look()
        if ('found' in first) return first
        const trouble = await controllers.scan()
        const second = await look()
        if ('found' in second || trouble.length === 0) return second
        return { missing: `${second.missing} (${trouble.join(', ')})` }
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

/** The one disk at the address. The host names no controller, so of two disks either may be the wrong one. */
async function findDisk(files: Files, address: string): Promise<Probe<string>> {
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
  if (others.length === 0) return blockNode(files, holder)
  const text = `SCSI disk ${address} is at more than one controller: ${holders.join(', ')}`
  throw new AgentError('FAILED_PRECONDITION', text)
}

/** The controllers, each asked once to look at an address. */
class Controllers {
  readonly #dependencies: Pick<HotplugDependencies, 'files' | 'clock'>
  readonly #text: string
  readonly #asked = new Set<string>()
  readonly #looking = new Set<string>()
  /** Why those that could not look could not. */
  readonly #failures = new Map<string, string>()

  constructor(dependencies: Pick<HotplugDependencies, 'files' | 'clock'>, { target, lun }: ScsiAddress) {
    this.#dependencies = dependencies
    this.#text = `0 ${target} ${lun}`
  }

  /**
   * Asks those that have not been asked yet. Some cannot have such an address: what is wrong with which is only told, at each
   * look anew.
   */
  async scan(): Promise<readonly string[]> {
    const { files, clock } = this.#dependencies
    const hosts = (await files.list(HOSTS)).filter((host) => !this.#asked.has(host))
    const scans = Promise.all(hosts.map((host) => this.#ask(host)))
    const ended = new AbortController()
    const late = clock.sleep(SCAN_MS, ended.signal)
    // Rejects when it is ended early, which nobody waits for any more.
    late.catch(() => {})
    await Promise.race([scans, late])
    ended.abort()
    return [...this.#failures.values(), ...[...this.#looking].map((host) => `${host} has not ended its look`)]
  }

  /** Has the next {@link scan} ask all of them again, but those that are still looking. */
  scanAgain(): void {
    this.#asked.clear()
    for (const host of this.#looking) this.#asked.add(host)
  }

  /** Never rejects. */
  async #ask(host: string): Promise<void> {
    this.#asked.add(host)
    this.#looking.add(host)
    this.#failures.delete(host)
    try {
      await this.#dependencies.files.write(`${HOSTS}/${host}/scan`, this.#text)
    } catch (error) {
      this.#failures.set(host, messageOf(error))
    } finally {
      this.#looking.delete(host)
    }
  }
}
