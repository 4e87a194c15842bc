import { AgentError } from '../../base/errors.ts'
import { UndoList } from '../../base/undo.ts'
import type { Device } from '../../gen/agent.ts'
import type { Spec } from '../../gen/oci.ts'
import type { ResolvedEdits } from '../../oci/cdi/apply-edits.ts'
import { type AskedDevice, askedCdiDevices } from '../../oci/cdi/asked-for.ts'
import type { AddedDevice, DeviceChoices, DeviceUpdate, GuestNode } from '../../oci/guest-devices.ts'
import type { Files } from '../../os/files/files.ts'
import { findCdiEdits } from './cdi/cdi.ts'
import type { DeviceDependencies, FoundDevice } from './handler.ts'
import { deviceHandler } from './handler-table.ts'

/** Finds the devices of requests (spec F). */
export interface DeviceHandlers {
  /**
   * The paths in the container of the devices whose node {@link DeviceHandlers.find} will tell. Throws as that one does
   * for a request that is wrong, or a type without handler.
   */
  updatedPaths(devices: readonly Device[]): readonly string[]
  /**
   * Waits for the devices, all at once. Throws INVALID_ARGUMENT for a request that is wrong and UNIMPLEMENTED for a type
   * without handler, waiting for nothing; INTERNAL when one does not come; or what `signal` is aborted with.
   */
  find(devices: readonly Device[], signal: AbortSignal): Promise<GuestDevices>
  /** The devices that a spec asks for by their CDI names. Throws INVALID_ARGUMENT for a malformed name. */
  askedCdiDevices(spec: Spec): readonly AskedDevice[]
  /** What those devices change in the spec, in order; see {@link findCdiEdits} for what it throws. */
  findCdiEdits(asked: readonly AskedDevice[], signal: AbortSignal): Promise<readonly ResolvedEdits[]>
}

/** The devices of one request as they are in the guest. */
export interface GuestDevices extends DeviceChoices {
  /** Puts all back where they were, for a request that fails later. Never throws. */
  readonly release: () => Promise<void>
}

const INFINIBAND = '/dev/infiniband'

/** Builds the device handlers. */
export function createDeviceHandlers(dependencies: DeviceDependencies): DeviceHandlers {
  const { os, log, cdi } = dependencies
  const { files, clock } = os
  return {
    askedCdiDevices: (spec) => askedCdiDevices(spec, cdi.readsVariable),

    findCdiEdits: (asked, signal) => findCdiEdits(asked, { files, clock, log, settings: cdi }, signal),

    updatedPaths: (devices) =>
      devices
        .filter((device) => !deviceHandler(checkDevice(device).type).withoutNode)
        .map(({ containerPath }) => containerPath),

    async find(devices, signal) {
      const checked = devices.map((device) => ({ device, handler: deviceHandler(checkDevice(device).type) }))
      const ended = new AbortController()
      const either = AbortSignal.any([signal, ended.signal])
      const undo = new UndoList(dependencies.log)
      const finding = checked.map(async ({ device, handler }) => {
        try {
          const found = await handler.find(device, dependencies, either)
          if (found.release !== undefined) undo.add(`give ${device.containerPath} back`, found.release)
          return { device, found }
        } catch (error) {
          // When one does not come, nobody waits for the others.
          ended.abort(error)
          throw error
        }
      })
      await Promise.allSettled(finding)
      try {
        ended.signal.throwIfAborted()
        return { ...(await describe(files, await Promise.all(finding))), release: () => undo.run() }
      } catch (error) {
        await undo.run()
        throw error
      }
    },
  }
}

async function describe(
  files: Files,
  devices: readonly { readonly device: Device; readonly found: FoundDevice }[],
): Promise<Omit<GuestDevices, 'release'>> {
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
  if (id === '' && vmPath === '') throw invalid(`device ${containerPath}: neither id nor vm_path`)
  if (containerPath === '') throw invalid(`device ${id || vmPath}: no container_path`)
  const text = [id, type, vmPath, containerPath, ...device.options].find((each) => each.includes('\0'))
  if (text !== undefined) throw invalid(`device ${containerPath}: ${JSON.stringify(text)} contains a NUL`)
  return device
}

async function updateOf(
  files: Files,
  { containerPath }: Device,
  { node, keepsNodePath = false }: FoundDevice,
): Promise<DeviceUpdate | undefined> {
  if (node === undefined) return undefined
  const numbers = await numbersOf(files, node)
  if (numbers === undefined) throw new AgentError('INTERNAL', `${node} is no device node any more`)
  return { containerPath, ...numbers, ...(keepsNodePath ? { newPath: node } : {}) }
}

/** What a driver in the container needs besides its device (spec D.4). */
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
