import { AgentError } from '../../base/errors.ts'
import type { DeviceHandlers } from './dependencies.ts'

/** The device handlers of an agent without any. */
export function noDeviceHandlers(): DeviceHandlers {
  return {
    attach: async (devices) => {
      const types = devices.map(({ type }) => type).join(', ')
      if (types !== '') throw new AgentError('UNIMPLEMENTED', `no device handler for: ${types}`)
    },
    shareMounts: async (mounts) => {
      const names = mounts.map(({ name }) => name).join(', ')
      if (names !== '') throw new AgentError('UNIMPLEMENTED', `shared mounts are not supported: ${names}`)
    },
  }
}
