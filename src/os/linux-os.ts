import { join } from 'node:path'
import type { Logger } from '../base/log.ts'
import { linuxClock } from './clock.ts'
import { linuxBlockDevices } from './devices/block-devices.ts'
import { linuxKernelLog } from './devices/kernel-log.ts'
import { linuxUevents } from './devices/uevents.ts'
import { linuxVolumes } from './devices/volumes/volumes.ts'
import { linuxFiles } from './files/linux-files.ts'
import { linuxMounts } from './files/linux-mounts.ts'
import { linuxScratchFiles } from './files/scratch-files.ts'
import { linuxStateFiles, type StateFiles } from './files/state-files.ts'
import { loadNative } from './native.ts'
import { linuxNetwork } from './network/linux-network.ts'
import type { Os } from './os.ts'
import { linuxCgroupEvents } from './process/cgroup-events.ts'
import { linuxTools } from './process/linux-tools.ts'
import { linuxSystem } from './process/system.ts'
import { linuxHostSockets } from './sockets/host-sockets.ts'
import { linuxSockets, type Sockets } from './sockets/sockets.ts'
import { linuxConsoles } from './streams/consoles.ts'
import { linuxStreams } from './streams/linux-streams.ts'
import { unblockedStdout } from './streams/stdout.ts'
import type { Fd } from './streams/streams.ts'
import { type Broker, connectBroker } from './supervisor/broker.ts'
import { connectVminit, type VminitChannel } from './supervisor/vminit.ts'

/** The operating system, and the sockets that only the transport uses. */
export interface LinuxOs extends Os {
  readonly sockets: Sockets
  readonly broker: Broker
  readonly stateFiles: StateFiles
  /** The process's own stdout: non-blocking where it is a pipe or a socket. */
  readonly stdout: Fd
}

/** `agentFolder` holds addon.node (`findAgentFolder`). Throws INTERNAL when the addon cannot be loaded. */
export function linuxOs(options: {
  readonly agentFolder: string
  readonly channel: VminitChannel
  readonly brokerFd: Fd
  readonly stateFolder: string
  readonly log: Logger
}): LinuxOs {
  const native = loadNative(options.agentFolder)
  const clock = linuxClock(native)
  const streams = linuxStreams(native)
  const tools = linuxTools(native, streams)
  const { agentFolder, channel, brokerFd, log } = options
  const files = linuxFiles(native)
  const { exits, supervisor, descriptors, freezer } = connectVminit({
    channel,
    native,
    streams,
    files,
    clock,
    log,
  })
  return {
    clock,
    files,
    scratch: linuxScratchFiles(native),
    mounts: linuxMounts({ native, tools, vminit: join(agentFolder, 'vminit') }),
    volumes: linuxVolumes(native),
    blockDevices: linuxBlockDevices(native),
    tools,
    streams,
    consoles: linuxConsoles(native, streams),
    hostSockets: linuxHostSockets({ native, streams, clock, descriptors }),
    exits,
    supervisor,
    descriptors,
    freezer,
    system: linuxSystem(native),
    network: linuxNetwork(native),
    kernelLog: linuxKernelLog({ native, streams, log }),
    uevents: linuxUevents({ native, streams, clock, log }),
    cgroupEvents: linuxCgroupEvents(native, streams),
    stdout: unblockedStdout(native),
    sockets: linuxSockets(native, descriptors),
    stateFiles: linuxStateFiles(native, options.stateFolder),
    broker: connectBroker({ fd: brokerFd, native, streams, clock, check: () => supervisor.checkBroker() }),
  }
}
