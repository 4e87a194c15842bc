import { AgentError } from '../../base/errors.ts'
import { UndoList } from '../../base/undo.ts'
import type { Device } from '../../gen/agent.ts'
import type { Spec } from '../../gen/oci.ts'
import type { ResolvedEdits } from '../../oci/cdi/apply-edits.ts'
import { type RequestedDevice, requestedCdiDevices } from '../../oci/cdi/requested-devices.ts'
import type { AddedDevice, DeviceChoices, DeviceUpdate, GuestNode } from '../../oci/guest-devices.ts'
import type { Files } from '../../os/files/files.ts'
import { bindBack } from './bind-vfio.ts'
import { waitForCdiEdits } from './cdi/cdi.ts'
import type { DeviceContext, DeviceRequestContext, GuestDevice } from './handler.ts'
import { deviceHandler } from './handler-table.ts'

export interface DeviceHandlers {
  /** The container paths for which `waitFor` returns a node. Throws the same errors for a wrong request or type. */
  updatedPaths(devices: readonly Device[]): readonly string[]
  /**
   * Throws INVALID_ARGUMENT or UNIMPLEMENTED before it waits for all devices at once, INTERNAL when one does not
   * appear. Calls `beforeBind` with a PCI device's address before it takes the device from its driver.
   */
  waitFor(
    devices: readonly Device[],
    signal: AbortSignal,
    beforeBind?: DeviceRequestContext['beforeBind'],
  ): Promise<GuestDevices>
  /** Rebinds PCI devices that an earlier agent took from their drivers. Never rejects. */
  bindBack(addresses: readonly string[]): Promise<void>
  /** Throws INVALID_ARGUMENT for a malformed CDI name. */
  requestedCdiDevices(spec: Spec): readonly RequestedDevice[]
  /** The edits for these devices, in order; {@link waitForCdiEdits} lists its errors. */
  waitForCdiEdits(devices: readonly RequestedDevice[], signal: AbortSignal): Promise<readonly ResolvedEdits[]>
}

export interface GuestDevices extends DeviceChoices {
  /** Rebinds the devices to their drivers when the request fails later. Never throws. */
  readonly onFailure: () => Promise<void>
}

const INFINIBAND = '/dev/infiniband'

export function createDeviceHandlers(dependencies: DeviceContext): DeviceHandlers {
  const { os, log, cdi } = dependencies
  const { files, clock } = os
  return {
    requestedCdiDevices: (spec) => requestedCdiDevices(spec, cdi.readsVariable),

    waitForCdiEdits: (devices, signal) =>
      waitForCdiEdits(devices, { files, clock, log, settings: cdi }, signal),

    updatedPaths: (devices) =>
      devices
        .filter((device) => !deviceHandler(checkDevice(device).type).withoutNode)
        .map(({ containerPath }) => containerPath),

    async bindBack(addresses) {
      const undo = new UndoList(log)
      for (const address of addresses)
        undo.add(`rebind ${address} to its driver`, () => bindBack(files, address))
      await undo.run()
    },

    async waitFor(devices, signal, beforeBind = () => {}) {
      const checked = devices.map((device) => ({ device, handler: deviceHandler(checkDevice(device).type) }))
      const ended = new AbortController()
      const either = AbortSignal.any([signal, ended.signal])
      const onFailure = new UndoList(dependencies.log)
      const pending = checked.map(async ({ device, handler }) => {
        try {
          const found = await handler.waitFor(device, { ...dependencies, beforeBind }, either)
          if (found.onFailure !== undefined) onFailure.add(`rebind ${device.containerPath}`, found.onFailure)
          return { device, found }
        } catch (error) {
          // One missing device fails the request, so stop waiting for the others.
          ended.abort(error)
          throw error
        }
      })
      await Promise.allSettled(pending)
      try {
        ended.signal.throwIfAborted()
        return { ...(await describe(files, await Promise.all(pending))), onFailure: () => onFailure.run() }
      } catch (error) {
        await onFailure.run()
        throw error
      }
    },
  }
}

async function describe(
  files: Files,
  devices: readonly { readonly device: Device; readonly found: GuestDevice }[],
): Promise<Omit<GuestDevices, 'onFailure'>> {
  const updates = await Promise.all(devices.map(({ device, found }) => updateOf(files, device, found)))
  const isPassedThrough = devices.some(({ device }) => device.type.startsWith('vfio-pci'))
  return {
    updates: updates.filter((update) => update !== undefined),
    added: isPassedThrough ? await infinibandDevices(files) : [],
    pciAddresses: new Map(devices.flatMap(({ found }) => [...(found.pciAddresses ?? [])])),
  }
}

function checkDevice(device: Device): Device {
  const { id, type, vmPath, containerPath } = device
  if (type === '') throw invalid(`invalid type for device ${containerPath}`)
  if (id === '' && vmPath === '') throw invalid(`device ${containerPath}: id and vm_path are empty`)
  if (containerPath === '') throw invalid(`device ${id || vmPath}: container_path is empty`)
  const text = [id, type, vmPath, containerPath, ...device.options].find((each) => each.includes('\0'))
  if (text !== undefined)
    throw invalid(`device ${containerPath}: ${JSON.stringify(text)} contains a NUL byte`)
  return device
}

async function updateOf(
  files: Files,
  { containerPath }: Device,
  { node, keepsNodePath = false }: GuestDevice,
): Promise<DeviceUpdate | undefined> {
  if (node === undefined) return undefined
  const numbers = await numbersOf(files, node)
  if (numbers === undefined)
    throw new AgentError('INTERNAL', `device ${containerPath}: ${node} is no longer a device node`)
  return { containerPath, ...numbers, ...(keepsNodePath ? { newPath: node } : {}) }
}

/** The InfiniBand nodes that a driver in the container needs besides its device. */
async function infinibandDevices(files: Files): Promise<readonly AddedDevice[]> {
  const paths = (await files.list(INFINIBAND)).map((name) => `${INFINIBAND}/${name}`)
  const devices = await Promise.all(
    paths.map(async (path) => {
      const numbers = await numbersOf(files, path)
      return numbers?.type === 'c' ? { path, ...numbers } : undefined
    }),
  )
  return devices.filter((device) => device !== undefined)
}

async function numbersOf(files: Files, node: string): Promise<GuestNode | undefined> {
  const status = await files.stat(node)
  if (status?.kind !== 'block' && status?.kind !== 'character') return undefined
  return { type: status.kind === 'block' ? 'b' : 'c', major: status.major, minor: status.minor }
}

function invalid(text: string): AgentError {
  return new AgentError('INVALID_ARGUMENT', text)
}
