import {
  Container,
  Device,
  Device_Kind as DeviceKind,
  Exit,
  GetNetworkResponse,
  GetSandboxResponse,
  ListMountsResponse,
  Process,
  Process_Role as Role,
} from '../../../src/gen/microvm/agent/v1/introspection.ts'
import { StreamTotal } from '../../../src/gen/microvm/agent/v1/lifecycle.ts'
import { Layer, Snapshot, Specification, State } from '../../../src/gen/microvm/instance/v1/instance.ts'
import { DocumentRecord, InstanceRecord, StepRecord } from '../../../src/gen/microvm/instance/v1/records.ts'
import type { MachineFacts } from '../../../src/host/migration/payloads/machine-facts.ts'

const block = (name: string, path: string, serial = '') =>
  Device.fromPartial({ kind: DeviceKind.BLOCK, name, node: `/dev/${name}`, path, serial })
const port = (containerId: string, stream: string, number: number) => ({ containerId, stream, port: number })

/** A machine of which every field is known: with a disk in parts, persistent memory, a share, a card, and a pod of two containers. */
export const FACTS: MachineFacts = {
  savedMs: 1_700_000_100_000n,
  record: InstanceRecord.fromPartial({
    properties: { key: 'web', tenant: 't', labels: { a: 'b' } },
    specification: Specification.fromPartial({
      board: { machine: 'pc-q35-7.2', memoryMib: 512n, cpus: 2, commandLine: 'agent.stream_grace=60' },
      devices: {
        root: { backend: 'root-file', slot: 3, disk: { serial: 'root' } },
        data: { backend: 'data-file', slot: 4, disk: { serial: 'data', nvme: true } },
        image: { backend: 'image-file', slot: 1, persistentMemory: { sizeBytes: 2n << 20n } },
        lan: { backend: 'net', slot: 5, nic: { mac: '52:54:00:00:00:0A' } },
        folders: { backend: 'shared', slot: 6, share: { tag: 'kataShared' } },
        vsock: { backend: 'socket', slot: 7, vsock: { cid: 12 } },
      },
      backends: {
        'root-file': { file: { path: '/disks/root', access: 2 } },
        'data-file': { file: { path: '/disks/data', access: 2 } },
        'image-file': { file: { path: '/disks/image', access: 1 } },
        net: { tap: { interfaceName: 'tap0', bridge: 'br0' } },
        shared: { virtiofsd: { path: '/srv' } },
        socket: { vsockDaemon: {} },
      },
      rebootLimit: { count: 5, seconds: 30 },
      limits: { memoryMib: 1024n, cpuMilli: 1500, tasks: 200 },
    }),
    document: DocumentRecord.fromPartial({ given: 'kind: VM', saved: '{}', stability: 1, clockStart: -60n }),
    ...{ desired: State.RUNNING, current: State.PAUSED, reason: 'QEMU says io-error' },
    ...{
      createdMs: 1_700_000_000_000n,
      cid: 12,
      bootId: 'b00t',
      reboots: 2,
      nextPort: 65_540,
      resets: ['t/k1'],
    },
    ...{ leaving: ['data', 'vsock', 'lan'], leavingMs: { data: 5n, vsock: 6n, lan: 7n } },
    layers: [
      Layer.fromPartial({ id: 4, parent: 0, backend: 'root-file', base: '/disks/root', active: true }),
    ],
    lastLayer: 4,
    snapshots: [
      Snapshot.fromPartial({
        ...{ name: 's1', createdMs: 8n, consistency: 1, stillUs: 9n },
        disks: [{ device: 'root', backend: 'root-file', layer: 0 }],
      }),
    ],
  }),
  steps: [StepRecord.create({ instance: 'web', step: 'plug', words: ['folders'] })],
  streams: [
    { port: 65_536, container: 'c1', exec: '', stream: 'stdout' },
    { port: 65_539, container: 'c3', exec: 'e9', stream: 'stdin' },
  ],
  rings: [
    { number: 0, first: 10n, end: 1034n, closed: false },
    { number: 65_536, first: 2n ** 40n, end: 2n ** 40n + 100n, closed: true },
  ],
  compatibility: { qemuVersion: '7.2.22', kvm: true },
  guest: {
    sandbox: GetSandboxResponse.fromPartial({ state: 'active', id: 'pod', streamGraceMs: 60_000n }),
    containers: [
      Container.fromPartial({
        ...{ containerId: 'c1', state: 'running', bundle: '/run/kata-containers/k1' },
        vfioDevices: ['0000:00:08.0'],
        storages: ['/run/kata-containers/k1/rootfs', '/run/shared', '/mnt/nothing', '/mnt/part'],
      }),
      Container.fromPartial({
        ...{ containerId: 'c2', state: 'created', bundle: '/run/kata-containers/c2' },
        vfioDevices: ['0000:00:08.0', '0000:00:09.1'],
      }),
    ],
    processes: [
      Process.fromPartial({ role: Role.INIT, containerId: 'c1', pid: 100, hasTerminal: true }),
      Process.fromPartial({ role: Role.EXEC, containerId: 'c1', execId: 'e1', pid: 101 }),
      Process.fromPartial({ role: Role.EXEC, containerId: 'c1', execId: 'e2', pid: 102, exitStatus: 3 }),
      Process.fromPartial({ role: Role.INIT, containerId: 'c2', pid: 103 }),
    ],
    exits: [
      Exit.fromPartial({
        ...{ sequence: 8n, containerId: 'c1', execId: 'e1', pid: 101, status: 137, signal: 9 },
        ...{ oomKilled: true, startedAtMs: 11n, endedAtMs: 12n },
      }),
      Exit.fromPartial({ sequence: 7n, containerId: 'c1', execId: 'e2', pid: 99, status: 1 }),
    ],
    mounts: ListMountsResponse.fromPartial({
      mounts: [
        { mountPoint: '/', type: 'ext4', source: '/dev/vda', readOnly: true },
        { mountPoint: '/mnt/part', type: 'xfs', source: '/dev/nvme0n1p2' },
        { mountPoint: '/run/shared', type: 'virtiofs', source: 'kataShared' },
        { mountPoint: '/tmp', type: 'tmpfs', source: 'kataShared' },
        { mountPoint: '/run/kata-containers/k1/rootfs', type: 'tmpfs', source: 'tmpfs' },
        { mountPoint: '/run/kata-containers/c2/rootfs', type: 'xfs', source: '/dev/nvme0n1p2' },
      ],
      storages: [
        {
          ...{ mountPoint: '/run/kata-containers/k1/rootfs', driver: 'nvdimm', device: '/dev/pmem0' },
          ...{ references: 1, state: 'attached' },
        },
        {
          ...{ mountPoint: '/run/shared', driver: 'virtio-fs', source: 'kataShared', references: 2 },
          ...{ state: 'detaching', shared: true },
        },
        { mountPoint: '/mnt/nothing', driver: 'ephemeral', source: 'tmpfs', state: 'attached' },
        {
          ...{ mountPoint: '/mnt/part', driver: 'blk', source: '04', device: '/dev/nvme0n1p2' },
          ...{ references: 3, state: 'attaching', shared: true },
        },
      ],
    }),
    devices: [
      block('vda', '/sys/devices/pci0000:00/0000:00:03.0/virtio0/block/vda', 'root'),
      block('vdb', '/sys/devices/pci0000:00/0000:00:0a.0/virtio5/block/vdb'),
      block('nvme0n1', '/sys/devices/pci0000:00/0000:00:04.0/nvme/nvme0/nvme0n1', 'data'),
      block('nvme0n1p2', '/sys/devices/pci0000:00/0000:00:04.0/nvme/nvme0/nvme0n1/nvme0n1p2'),
      block('pmem0', '/sys/devices/LNXSYSTM:00/ndbus0/region0/namespace0.0/block/pmem0'),
      Device.fromPartial({ kind: DeviceKind.PCI, name: '0000:00:08.0', driver: 'vfio-pci' }),
      Device.fromPartial({ kind: DeviceKind.PCI, name: '0000:00:09.1', driver: 'virtio-pci' }),
    ],
    network: GetNetworkResponse.fromPartial({
      interfaces: [
        { index: 1, name: 'lo', hardwareAddress: '00:00:00:00:00:00' },
        {
          ...{ index: 2, name: 'eth0', hardwareAddress: '52:54:00:00:00:0a', mtu: 1400, isUp: true },
          ...{ addresses: [{ address: '10.0.0.2/24', source: 'rpc' }], source: 'rpc' },
        },
      ],
      routes: [{ destination: '0.0.0.0/0', gateway: '10.0.0.1', device: 'eth0', source: 'rpc' }],
    }),
    streams: [
      StreamTotal.fromPartial({
        ...{ ...port('c1', 'stdout', 65_536), name: new Uint8Array([1, 2]) },
        ...{ total: 2n ** 40n + 100n, acknowledged: 2n ** 40n },
      }),
      StreamTotal.fromPartial({ ...port('c2', 'stdin', 65_537), total: 4n }),
      StreamTotal.fromPartial({ ...port('c1', 'stderr', 65_538), execId: 'e1' }),
    ],
    refusedCalls: ['ListCalls'],
  },
}
