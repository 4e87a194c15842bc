import type { Clock } from './clock.ts'
import type { BlockDevices } from './devices/block-devices.ts'
import type { KernelLog } from './devices/kernel-log.ts'
import type { Uevents } from './devices/uevents.ts'
import type { Volumes } from './devices/volumes/volumes.ts'
import type { Files, ScratchFiles } from './files/files.ts'
import type { Mounts } from './files/mounts.ts'
import type { Network } from './network/network.ts'
import type { CgroupEvents } from './process/cgroup-events.ts'
import type { System } from './process/system.ts'
import type { Tools } from './process/tools.ts'
import type { HostSockets } from './sockets/host-sockets.ts'
import type { Consoles } from './streams/consoles.ts'
import type { Streams } from './streams/streams.ts'
import type { DescriptorStore, Exits, Freezer, Supervisor } from './supervisor/supervisor.ts'

/**
 * All system calls of the agent; unit tests use a fake. Failures are `AgentError`s of code INTERNAL with the text
 * `<call> <path>: <ERRNO>` and the errno's name in `errno`.
 */
export interface Os {
  readonly clock: Clock
  readonly files: Files
  readonly scratch: ScratchFiles
  readonly mounts: Mounts
  readonly volumes: Volumes
  readonly blockDevices: BlockDevices
  readonly tools: Tools
  readonly streams: Streams
  readonly consoles: Consoles
  readonly hostSockets: HostSockets
  readonly exits: Exits
  readonly supervisor: Supervisor
  readonly descriptors: DescriptorStore
  readonly freezer: Freezer
  readonly system: System
  readonly network: Network
  readonly uevents: Uevents
  readonly kernelLog: KernelLog
  readonly cgroupEvents: CgroupEvents
}
