import { constants } from 'node:fs'
import { checkErrno } from '../errors.ts'
import { readPart } from '../files/read-head.ts'
import type { Native } from '../native.ts'
import { AT_FDCWD } from '../open-flags.ts'
import {
  DM_COMMAND,
  DM_FLAG,
  deviceMapperMessage,
  deviceMapperRequest,
  type MappedTarget,
  minorOf,
} from './device-mapper-message.ts'

/** Reads disks by their nodes, and manages devices of the kernel's device mapper. */
export interface BlockDevices {
  /** Fewer bytes when the device ends before. */
  read(node: string, offsetBytes: number, lengthBytes: number): Promise<Uint8Array>
  /** Returns the node of a read-only device. EBUSY: used name; ENOENT, ENODEV: no device mapper; EINVAL: bad target. */
  map(name: string, target: MappedTarget): Promise<string>
  /** Removes a device of {@link BlockDevices.map} once nothing has it open. ENXIO when it does not exist. */
  unmap(name: string): Promise<void>
}

const CONTROL = '/dev/mapper/control'

export function linuxBlockDevices(native: Pick<Native, 'openAt2' | 'ioctl' | 'close'>): BlockDevices {
  async function command(what: keyof typeof DM_COMMAND, name: string, message: Buffer): Promise<void> {
    const how = { flags: constants.O_RDWR, mode: 0, resolve: 0 }
    const control = checkErrno('open', CONTROL, native.openAt2(AT_FDCWD, CONTROL, how))
    try {
      const result = await native.ioctl(control, deviceMapperRequest(DM_COMMAND[what]), message)
      checkErrno(`device mapper: ${what}`, name, result)
    } finally {
      native.close(control)
    }
  }

  async function unmap(name: string): Promise<void> {
    await command('remove', name, deviceMapperMessage(name, { flags: DM_FLAG.deferredRemove }))
  }

  return {
    read: (node, offsetBytes, lengthBytes) => readPart(node, offsetBytes, lengthBytes),

    async map(name, target) {
      const created = deviceMapperMessage(name)
      await command('create', name, created)
      try {
        await command('load', name, deviceMapperMessage(name, { flags: DM_FLAG.readOnly, target }))
        await command('resume', name, deviceMapperMessage(name))
        return `/dev/dm-${minorOf(created)}`
      } catch (error) {
        // Report the first error, not a failure to remove the unfinished device.
        await unmap(name).catch(() => {})
        throw error
      }
    },

    unmap,
  }
}
