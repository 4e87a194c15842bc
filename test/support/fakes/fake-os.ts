import type { Os } from '../../../src/os/os.ts'
import { FakeClock } from './fake-clock.ts'
import { FakeBlockDevices, FakeKernelLog, FakeUevents, FakeVolumes } from './fake-devices.ts'
import { FakeNetwork } from './fake-network.ts'
import { FakeFiles } from './files/fake-files.ts'
import { FakeMounts } from './files/fake-mounts.ts'
import { FakeCgroupEvents } from './process/fake-cgroup-events.ts'
import { FakeSystem } from './process/fake-system.ts'
import { FakeTools } from './process/fake-tools.ts'
import { FakeConsoles } from './streams/fake-consoles.ts'
import { FakeHostSockets } from './streams/fake-host-sockets.ts'
import { FakeStreams } from './streams/fake-streams.ts'
import { FakeDescriptors } from './supervisor/fake-descriptors.ts'
import { FakeExits, FakeSupervisor } from './supervisor/fake-exits.ts'
import { FakeFreezer } from './supervisor/fake-freezer.ts'

export class FakeOs implements Os {
  readonly clock = new FakeClock()
  readonly mounts = new FakeMounts()
  readonly files = new FakeFiles(this.mounts)
  readonly scratch = this.files
  readonly tools = new FakeTools()
  readonly streams = new FakeStreams()
  readonly consoles = new FakeConsoles(this.streams)
  readonly exits = new FakeExits(this.clock)
  readonly supervisor = new FakeSupervisor()
  readonly descriptors = new FakeDescriptors(this.streams)
  readonly freezer = new FakeFreezer((path, data) => this.files.write(path, data))
  readonly hostSockets = new FakeHostSockets(this.streams, this.descriptors)
  readonly system = new FakeSystem()
  readonly network = new FakeNetwork()
  readonly uevents = new FakeUevents()
  readonly kernelLog = new FakeKernelLog(this.clock)
  readonly volumes = new FakeVolumes(this.files)
  readonly blockDevices = new FakeBlockDevices(this.files)
  readonly cgroupEvents = new FakeCgroupEvents(this.files)
}
