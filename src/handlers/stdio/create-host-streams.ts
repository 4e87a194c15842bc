import type { Logger } from '../../base/log.ts'
import type { Os } from '../../os/os.ts'
import { dialHost } from './dial-host.ts'
import type { HostStreams, HostStreamsConfig } from './host-streams.ts'
import { listenForHost } from './waiting-connections.ts'

/** Dials the host at the ports, or claims the connections that it made, as the configuration says. */
export function createHostStreams(options: {
  readonly os: Os
  readonly log: Logger
  readonly config: HostStreamsConfig
}): HostStreams {
  const { os, config } = options
  if (config.listenerPort > 0) return listenForHost(options)
  return { connect: dialHost(os, config), listen: async () => {} }
}
