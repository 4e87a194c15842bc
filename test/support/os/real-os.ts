import { join } from 'node:path'
import { silentLogger } from '../../../src/base/log.ts'
import { linuxClock } from '../../../src/os/clock.ts'
import { linuxBlockDevices } from '../../../src/os/devices/block-devices.ts'
import { linuxUevents } from '../../../src/os/devices/uevents.ts'
import { linuxFiles } from '../../../src/os/files/linux-files.ts'
import { linuxMounts } from '../../../src/os/files/linux-mounts.ts'
import { linuxNetwork } from '../../../src/os/network/linux-network.ts'
import type { Os } from '../../../src/os/os.ts'
import { linuxTools } from '../../../src/os/process/linux-tools.ts'
import { linuxStreams } from '../../../src/os/streams/linux-streams.ts'
import { addonFolder, realNative } from './real-native.ts'

export async function realOs(): Promise<
  Pick<Os, 'blockDevices' | 'clock' | 'files' | 'mounts' | 'network' | 'tools' | 'uevents'>
> {
  const native = await realNative()
  const streams = linuxStreams(native)
  const clock = linuxClock(native)
  const tools = linuxTools(native, streams)
  return {
    clock,
    blockDevices: linuxBlockDevices(native),
    files: linuxFiles(native),
    mounts: linuxMounts({ native, tools, vminit: join(await addonFolder(), 'vminit') }),
    network: linuxNetwork(native),
    tools,
    uevents: linuxUevents({ native, streams, clock, log: silentLogger() }),
  }
}
