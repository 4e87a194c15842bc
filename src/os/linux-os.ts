import type { Logger } from '../base/log.ts'
import { linuxBlockDevices } from './block-devices/block-devices.ts'
import { linuxCgroupEvents } from './cgroup-events.ts'
import { linuxClock } from './clock.ts'
import { linuxConsoles } from './consoles.ts'
import { linuxHostSockets } from './host-sockets.ts'
import { linuxFiles } from './linux-files.ts'
import { linuxNetwork } from './linux-network.ts'
import { linuxMounts } from './mounts.ts'
import { loadNative } from './native.ts'
import type { Fd, Os } from './os.ts'
import { linuxScratchFiles } from './scratch-files.ts'
import { linuxSockets, type Sockets } from './sockets.ts'
import { linuxStreams } from './streams.ts'
import { linuxSystem } from './system.ts'
import { linuxTools } from './tools.ts'
import { linuxUevents } from './uevents.ts'
import { connectVminit } from './vminit.ts'
import { linuxVolumes } from './volumes/volumes.ts'

/** Linux, with the sockets that only the transport needs. */
export interface LinuxOs extends Os {
  readonly sockets: Sockets
}

/**
 * Everything of src/os put together. `agentFolder` holds addon.node (see `findAgentFolder`); `channel` is
 * the socket to vminit, if the agent was started with one.
 */
export function linuxOs(options: {
  readonly agentFolder: string
  readonly channel: Fd | undefined
  readonly log: Logger
}): LinuxOs {
  const native = loadNative(options.agentFolder)
  const clock = linuxClock(native)
  const streams = linuxStreams(native)
  return {
    clock,
    files: linuxFiles(native),
    scratch: linuxScratchFiles(),
    mounts: linuxMounts(native),
    volumes: linuxVolumes(native),
    blockDevices: linuxBlockDevices(native),
    tools: linuxTools(native, streams),
    streams,
    consoles: linuxConsoles(native, streams),
    hostSockets: linuxHostSockets(native, streams, clock),
    ...connectVminit({ channel: options.channel, native, streams, clock, log: options.log }),
    system: linuxSystem(native),
    network: linuxNetwork(native),
    uevents: linuxUevents({ native, streams, clock, log: options.log }),
    cgroupEvents: linuxCgroupEvents(native, streams),
    sockets: linuxSockets(native, streams),
  }
}
