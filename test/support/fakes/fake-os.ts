import type { Os } from '../../../src/os/os.ts'
import { FakeCgroupEvents } from './fake-cgroup-events.ts'
import { FakeClock } from './fake-clock.ts'
import { FakeConsoles } from './fake-consoles.ts'
import { FakeDescriptors } from './fake-descriptors.ts'
import { FakeBlockDevices, FakeVolumes } from './fake-devices.ts'
import { FakeExits, FakeSupervisor } from './fake-exits.ts'
import { FakeFiles } from './fake-files.ts'
import { FakeHostSockets } from './fake-host-sockets.ts'
import { FakeMounts } from './fake-mounts.ts'
import { FakeNetwork } from './fake-network.ts'
import { FakeStreams } from './fake-streams.ts'
import { FakeSystem, FakeUevents } from './fake-system.ts'
import { FakeTools } from './fake-tools.ts'

/** A machine in memory that behaves like the kernel and shows the test its state. */
export class FakeOs implements Os {
  readonly clock = new FakeClock()
  readonly mounts = new FakeMounts()
  readonly files = new FakeFiles(this.mounts)
  readonly scratch = this.files
  readonly tools = new FakeTools()
  readonly streams = new FakeStreams()
  readonly consoles = new FakeConsoles(this.streams)
  readonly hostSockets = new FakeHostSockets(this.streams)
  readonly exits = new FakeExits(this.clock)
  readonly supervisor = new FakeSupervisor()
  readonly descriptors = new FakeDescriptors(this.streams)
  readonly system = new FakeSystem()
  readonly network = new FakeNetwork()
  readonly uevents = new FakeUevents()
  readonly volumes = new FakeVolumes()
  readonly blockDevices = new FakeBlockDevices(this.files)
  readonly cgroupEvents = new FakeCgroupEvents(this.files)
}
