import { execFile } from 'node:child_process'
import { existsSync } from 'node:fs'
import { promisify } from 'node:util'
import { AgentError, messageOf } from '../../../base/errors.ts'

/** The network interfaces of this host. */
export interface HostLinks {
  exists(name: string): boolean
  /** Makes the interface a port of `bridge`, or of none when that is empty, and sets it up. */
  connect(name: string, bridge: string): Promise<void>
}

/** For one call of ip(8). */
const IP_MS = 10_000

export function hostLinks(): HostLinks {
  return {
    exists: (name) => existsSync(`/sys/class/net/${name}`),
    connect: async (name, bridge) => {
      const master = bridge === '' ? ['nomaster'] : ['master', bridge]
      try {
        await promisify(execFile)('ip', ['link', 'set', 'dev', name, ...master, 'up'], { timeout: IP_MS })
      } catch (error) {
        throw new AgentError('FAILED_PRECONDITION', `interface ${name}: ${messageOf(error)}`, {
          cause: error,
        })
      }
    },
  }
}
