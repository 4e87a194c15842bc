import { notBuilt, object } from '../document/shape.ts'
import { cpu } from './board/cpu.ts'
import { firmware } from './board/firmware.ts'
import { iothreads } from './board/iothreads.ts'
import { machine } from './board/machine.ts'
import { memory } from './board/memory.ts'
import { numa } from './board/numa.ts'
import { smbios } from './board/smbios.ts'
import { system } from './board/system.ts'
import { balloon } from './devices/balloon.ts'
import { channel } from './devices/channel.ts'
import { console } from './devices/console.ts'
import { controllers } from './devices/controllers.ts'
import { generationId } from './devices/generation-id.ts'
import { graphics } from './devices/graphics.ts'
import { input } from './devices/input.ts'
import { metadata } from './devices/metadata.ts'
import { network } from './devices/network.ts'
import { rng } from './devices/rng.ts'
import { share } from './devices/share.ts'
import { storage } from './devices/storage.ts'
import { vsock } from './devices/vsock.ts'
import { watchdog } from './devices/watchdog.ts'
import type { Feature } from './feature.ts'

/** The features in the order in which they are expanded: each sees what those before it have made. */
export const FEATURES: readonly Feature[] = [
  machine,
  // The identity, from which MACs and serials are derived.
  smbios,
  // Its model decides how much memory can be reached.
  cpu,
  memory,
  numa,
  firmware,
  iothreads,
  controllers,
  system,
  storage,
  network,
  graphics,
  console,
  vsock,
  metadata,
  share,
  rng,
  balloon,
  input,
  watchdog,
  generationId,
  channel,
]

/** Features that are known by name and refused. */
export const NOT_BUILT: Readonly<Record<string, string>> = {
  tpm: 'a TPM wants swtpm, which is not packaged with the host',
  hostDevices: 'devices of the host (PCI, USB, mdev, NPIV)',
  sound: 'a sound card',
  floppy: 'floppy disks',
  parallel: 'parallel ports',
  memoryDevices: 'memory modules and persistent memory',
  launchSecurity: 'encrypted memory',
  iommu: 'an IOMMU',
}

export const featuresShape = object({
  ...Object.fromEntries(FEATURES.map(({ name, shape }) => [name, shape])),
  ...Object.fromEntries(Object.entries(NOT_BUILT).map(([name, what]) => [name, notBuilt(what)])),
})
