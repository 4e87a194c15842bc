import { AgentError } from '../base/errors.ts'
import { type Linux, type LinuxDevice, type LinuxDeviceCgroup, LinuxResources } from '../gen/oci.ts'
import type { PciAddresses } from './pci-environment.ts'
import { withExplicitWildcard } from './resources.ts'

export interface GuestNode {
  readonly type: 'b' | 'c'
  readonly major: number
  readonly minor: number
}

export interface DeviceUpdate extends GuestNode {
  /** The `Path` of the device in the spec. */
  readonly containerPath: string
  /** The path that replaces it in the container, for devices whose path has a meaning. */
  readonly newPath?: string
}

/** A device node that the container gets in addition to those of its spec. */
export interface AddedDevice extends GuestNode {
  readonly path: string
}

export interface DeviceChoices {
  /** The guest's nodes for devices that the spec names. */
  readonly updates: readonly DeviceUpdate[]
  readonly added: readonly AddedDevice[]
  readonly pciAddresses: PciAddresses
}

/**
 * Replaces the host's device numbers in a spec with the guest's. Rules are matched only by the host's numbers, because
 * the guest's may belong to another device on the host. In the rules of the result 0 is a number and −1 means any.
 * Throws INVALID_ARGUMENT for updates that contradict each other or name a device that the spec does not have.
 */
export function withGuestDevices(
  linux: Linux,
  { updates, added }: Pick<DeviceChoices, 'updates' | 'added'>,
): Linux {
  if (linux.Resources === undefined && updates.length + added.length === 0) return linux
  const byPath = new Map(updates.map((update) => [update.containerPath, update]))
  const pathOfHost = checkDevicePaths(
    linux,
    updates.map(({ containerPath }) => containerPath),
  )
  const updateOf = (rule: LinuxDeviceCgroup) => byPath.get(pathOfHost.get(numbersOf(rule)) ?? '')
  const resources = linux.Resources ?? LinuxResources.create()
  const rules = resources.Devices.map((rule) => withGuestNumbers(rule, updateOf(rule)))
  return {
    ...linux,
    Devices: [
      ...linux.Devices.map((device) => withGuestNode(device, byPath.get(device.Path))),
      ...added.map(addedDevice),
    ],
    Resources: { ...resources, Devices: [...rules, ...[...updates, ...added].map(allowRule)] },
  }
}

/**
 * Checks, before devices are waited for, that a spec can be updated at these device paths. Returns the paths by the
 * host's numbers of the devices. Throws INVALID_ARGUMENT for paths that contradict each other or are not in the spec.
 */
export function checkDevicePaths(linux: Linux, paths: readonly string[]): ReadonlyMap<string, string> {
  const pathOfHost = new Map<string, string>()
  // Of two devices with the same path the first one counts.
  const devices = new Map(linux.Devices.toReversed().map((device) => [device.Path, device]))
  const seen = new Set<string>()
  for (const path of paths) {
    if (seen.has(path)) throw refused(`Conflicting device updates for ${path}`)
    seen.add(path)
    const device = devices.get(path)
    if (device === undefined) throw refused(`Missing devices in OCI spec: "${path}"`)
    const host = numbersOf(device)
    const other = pathOfHost.get(host)
    if (other !== undefined) throw refused(`${path} and ${other} are the same device of the host: ${host}`)
    pathOfHost.set(host, path)
  }
  return pathOfHost
}

function numbersOf({ Type, Major, Minor }: Pick<LinuxDevice, 'Type' | 'Major' | 'Minor'>): string {
  return `${Type} ${Major}:${Minor}`
}

function withGuestNumbers(rule: LinuxDeviceCgroup, update: DeviceUpdate | undefined): LinuxDeviceCgroup {
  if (update === undefined) return withExplicitWildcard(rule)
  return { ...rule, Type: update.type, Major: BigInt(update.major), Minor: BigInt(update.minor) }
}

function withGuestNode(device: LinuxDevice, update: DeviceUpdate | undefined): LinuxDevice {
  if (update === undefined) return device
  const { type, major, minor, newPath } = update
  return {
    ...device,
    Path: newPath ?? device.Path,
    Type: type,
    Major: BigInt(major),
    Minor: BigInt(minor),
  }
}

function addedDevice({ path, type, major, minor }: AddedDevice): LinuxDevice {
  return { Path: path, Type: type, Major: BigInt(major), Minor: BigInt(minor), FileMode: 0, UID: 0, GID: 0 }
}

function allowRule({ type, major, minor }: GuestNode): LinuxDeviceCgroup {
  return { Allow: true, Type: type, Major: BigInt(major), Minor: BigInt(minor), Access: 'rwm' }
}

function refused(reason: string): AgentError {
  return new AgentError('INVALID_ARGUMENT', reason)
}
