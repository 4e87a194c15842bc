import type { StatusCodeName } from '../../../../src/base/errors.ts'
import type { CreateContainerRequest, Device, Storage } from '../../../../src/gen/agent.ts'
import type { DeepPartial } from '../../../../src/gen/oci.ts'
import { createContainerRequest } from '../../../support/containers/container-requests.ts'
import { type BadInput, UNMADE } from './bad-input.ts'

const BELOW = '/run/kata-containers'

export const LINK = `${BELOW}/link`

const LAYERS = 'erofs.multi-layer'

/** The only layer of an image, on a disk that never appears. */
const LAYER: DeepPartial<Storage> = { driver: LAYERS, source: '1e', fstype: 'erofs' }

const creation = (
  what: string,
  request: DeepPartial<CreateContainerRequest>,
  names: string,
  code: StatusCodeName,
): BadInput => ({
  ...{ rpc: 'CreateContainer', what, code, names },
  call: (agent, root) => {
    const { OCI, ...whole } = createContainerRequest(UNMADE, root, ['true'])
    const Linux = { ...OCI?.Linux, Devices: [{ Path: '/dev/x', Type: 'b', Major: 8n, Minor: 0n }] }
    return agent.createContainer({ ...whole, OCI: { ...OCI, Linux }, ...request })
  },
})

const good: DeepPartial<Storage> = {
  ...{ driver: 'ephemeral', source: 'tmpfs', fstype: 'tmpfs', mountPoint: `${BELOW}/memory` },
}

/** A valid storage followed by one with `change`. */
const storage = (
  what: string,
  change: DeepPartial<Storage>,
  names: string,
  code: StatusCodeName = 'INVALID_ARGUMENT',
): BadInput => {
  const bad = { ...good, mountPoint: `${BELOW}/second`, ...change }
  return creation(`a storage with ${what}`, { storages: [good, bad] }, names, code)
}

const device = (
  what: string,
  change: DeepPartial<Device>,
  names: string,
  code: StatusCodeName = 'INVALID_ARGUMENT',
): BadInput => {
  const bad = { type: 'blk', id: '02/03', containerPath: '/dev/x', ...change }
  return creation(`a device with ${what}`, { devices: [bad] }, names, code)
}

const pciPaths = [
  '/',
  '2',
  '02/',
  '/02',
  '02//03',
  '20',
  '02.8',
  '02.0.0',
  'xx',
  '02/20',
  '02 /03',
  '0x02',
  '..',
]

const remount = (what: string, change: DeepPartial<Storage>, names: string): BadInput => ({
  ...{ rpc: 'UpdateEphemeralMounts', what, code: 'INVALID_ARGUMENT', names },
  call: (agent) => agent.updateEphemeralMounts({ storages: [{ ...good, options: ['remount'], ...change }] }),
})

export const STORAGE_INPUT: readonly BadInput[] = [
  storage('no driver', { driver: '' }, 'Failed to find the storage handler '),
  storage('an unknown driver', { driver: 'tape' }, 'Failed to find the storage handler tape'),
  storage('a driver of s390x', { driver: 'blk-ccw' }, 'blk-ccw: only supported on s390x', 'UNIMPLEMENTED'),
  storage(
    'an image to pull',
    { driver: 'image_guest_pull' },
    'this guest has no helper that pulls images',
    'UNIMPLEMENTED',
  ),
  storage('source is empty', { driver: 'virtio-fs', source: '' }, `${BELOW}/second: source is empty`),
  storage('no file system', { driver: 'virtio-fs', fstype: '' }, `${BELOW}/second: fstype is empty`),
  storage(
    'the mount point of another one, a disk that is not there',
    { driver: 'blk', source: '/dev/none', fstype: 'ext4', mountPoint: `${BELOW}/memory` },
    'blk "/dev/none" with fstype "ext4", want ephemeral "tmpfs" with fstype "tmpfs", which is attached there',
    'FAILED_PRECONDITION',
  ),
  storage('no mount point', { mountPoint: '' }, 'mount point "": '),
  storage('the option loop', { options: ['loop'] }, 'mount option loop: not supported'),
  storage(
    'options of a page',
    { options: ['x'.repeat(4096)] },
    `mount ${BELOW}/second: 4096 bytes of options, want at most 4095`,
  ),
  storage('options of a MiB', { options: ['x'.repeat(1024 * 1024)] }, '1048576 bytes of options'),
  storage('a NUL in an option', { options: ['size=1m\0,exec'] }, 'contains a NUL'),
  storage(
    'an option that the kernel does not know',
    { options: ['fly=1'] },
    `${BELOW}/second: EINVAL`,
    'INTERNAL',
  ),
  storage('a mount point elsewhere', { mountPoint: '/etc' }, 'mount point "/etc": not below '),
  storage('the root of all as mount point', { mountPoint: BELOW }, `mount point "${BELOW}": not below `),
  storage(
    'a relative mount point',
    { mountPoint: 'run/x' },
    'mount point "run/x": not a normalised absolute path',
  ),
  storage('a mount point that is a link', { mountPoint: LINK }, `${LINK} is a symbolic link`),
  storage('a mount point behind a link', { mountPoint: `${LINK}/x` }, `${LINK} is a symbolic link`),
  storage(
    'a mount point of a MiB',
    { mountPoint: `${BELOW}/${'x'.repeat(1024 * 1024)}` },
    'longer than 4095 bytes',
  ),
  storage('a type of a MiB', { driver: 'x'.repeat(1024 * 1024) }, 'Failed to find the storage handler x'),
  storage(
    'a file for a disk',
    { driver: 'blk', source: '/dev/null' },
    '/dev/null: is a character, want a block device',
  ),
  storage(
    'a disk that is not there',
    { driver: 'blk', source: '/dev/none' },
    '/dev/none: no such device, want a block device',
  ),
  storage('an address for a disk', { driver: 'scsi', source: '1:x' }, 'SCSI address "1:x": '),
  storage('a path for a disk', { driver: 'mmioblk', source: '/dev/../vda' }, '"/dev/../vda": '),
  storage(
    'a key, but no file system to encrypt',
    { driverOptions: ['encryption_key=ephemeral'] },
    `${BELOW}/second: encryption_key requires create_filesystem`,
  ),
  storage(
    'a file system to encrypt',
    { driverOptions: ['encryption_key=ephemeral', 'create_filesystem'] },
    `${BELOW}/second: encryption_key is not supported`,
    'UNIMPLEMENTED',
  ),
  storage('nothing but an upper layer', { driver: LAYERS, fstype: 'ext4' }, 'no lower layer'),
  storage(
    'a layer that has no disk',
    { options: ['X-kata.multi-layer=true'], fstype: 'erofs' },
    'has no disks',
  ),
  storage('a layer of another file system', { driver: LAYERS }, 'fstype "tmpfs", want ext4'),
  storage(
    'a layer whose partition has no number',
    { ...LAYER, options: ['X-kata.gpt-partitioned=true'] },
    'partition-number',
  ),
  storage(
    'an unknown option of a layer',
    { ...LAYER, options: ['X-kata.new=1'] },
    'option X-kata.new: not supported by this agent',
    'UNIMPLEMENTED',
  ),
  ...pciPaths.map((path) =>
    storage(`the PCI path '${path}'`, { driver: 'blk', source: path }, `PCI path "${path}": `),
  ),
  device('no type', { type: '' }, 'invalid type for device /dev/x'),
  device('an unknown type', { type: 'usb' }, 'Failed to find the device handler usb'),
  device('a type of s390x', { type: 'vfio-ap' }, 'vfio-ap: only supported on s390x', 'UNIMPLEMENTED'),
  device('no place', { id: '' }, 'id and vm_path are empty'),
  device('no path in the container', { containerPath: '' }, 'container_path is empty'),
  device('a NUL in its path', { containerPath: '/dev/x\0y' }, 'contains a NUL'),
  device(
    'a malformed option',
    { type: 'vfio-pci', options: ['1a:02.3=06'] },
    'Malformed VFIO PCI option: "1a:02.3=06"',
  ),
  ...pciPaths.map((id) => device(`the PCI path '${id}'`, { id }, `PCI path "${id}": `)),
  creation(
    'two devices at one path',
    { devices: ['02/03', '02/04'].map((id) => ({ type: 'blk', id, containerPath: '/dev/x' })) },
    'Conflicting device updates for /dev/x',
    'INVALID_ARGUMENT',
  ),
  creation(
    'a device that its spec does not have',
    { devices: [{ type: 'blk', id: '02/03', containerPath: '/dev/y' }] },
    'Missing devices in OCI spec: "/dev/y"',
    'INVALID_ARGUMENT',
  ),
  remount('another driver', { driver: 'local' }, 'driver "local" cannot be updated'),
  remount('a mount point elsewhere', { mountPoint: '/etc' }, 'mount point "/etc": not below '),
  remount('a mount point behind a link', { mountPoint: `${LINK}/x` }, `${LINK} is a symbolic link`),
]
