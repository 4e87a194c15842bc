import { AgentError } from '../../base/errors.ts'
import type { DeviceHandlers } from './dependencies.ts'

/** Throws UNIMPLEMENTED for a request whose stdio shall go over vsock connections of its own. */
export function refuseStdioPorts(request: {
  readonly stdinPort: number
  readonly stdoutPort: number
  readonly stderrPort: number
}): void {
  const { stdinPort, stdoutPort, stderrPort } = request
  if (stdinPort !== 0 || stdoutPort !== 0 || stderrPort !== 0) {
    throw new AgentError('UNIMPLEMENTED', 'stdio over vsock ports is not supported by this agent')
  }
}

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
