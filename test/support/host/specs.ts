import type { Backend, Board, Device, VmSpec } from '../../../src/host/spec/spec.ts'
import { specKey } from '../../../src/host/spec/spec-key.ts'

export const BOARD: Board = {
  machine: 'pc-q35-7.2',
  memoryMib: 256,
  cpus: 1,
  kernel: '/k',
  initrd: '/i',
  commandLine: 'console=ttyS0',
}

/** Rows of a key, its device and the backend that the device names. */
export type Parts = readonly (readonly [string, Device, (Backend | undefined)?])[]

export function specOf(parts: Parts, board: Partial<Board> = {}): VmSpec {
  return {
    board: { ...BOARD, ...board },
    devices: Object.fromEntries(parts.map(([key, device]) => [specKey(key), device])),
    backends: Object.fromEntries(
      parts.flatMap(([, device, backend]) =>
        backend === undefined || !('backend' in device) ? [] : [[device.backend, backend]],
      ),
    ),
  }
}

const key = specKey

/** A device of each kind that machine `microvm` has, in slots, with all backends between them. */
export const EVERYWHERE: Parts = [
  [
    'root',
    { kind: 'disk', slot: 3, serial: 'root', backend: key('root-file') },
    { kind: 'file', path: '/root.img', access: 'read-only' },
  ],
  [
    '0B7E4A52-9C7E-4A63-8F3E-2F3F5D6A7B8C',
    { kind: 'disk', slot: 4, serial: 'data', backend: key('0b7e4a52-9c7e-4a63-8f3e-2f3f5d6a7b8c-backend') },
    { kind: 'file', path: '/data,1.img', access: 'read-write' },
  ],
  [
    'scratch',
    { kind: 'disk', slot: 5, serial: 'scratch', backend: key('scratch "file"') },
    { kind: 'file', path: '/scratch.img', access: 'scratch' },
  ],
  [
    'plain',
    { kind: 'nic', slot: 6, mac: '52:54:00:00:00:06', backend: key('plain-tap') },
    { kind: 'tap', interfaceName: 'wing0', bridge: 'wing-br' },
  ],
  [
    'net',
    { kind: 'nic', slot: 7, mac: '52:54:00:00:00:07', replaceable: true, backend: key('passt') },
    { kind: 'passt' },
  ],
  [
    'user',
    { kind: 'nic', slot: 8, mac: '52:54:00:00:00:08', backend: key('user-network') },
    {
      kind: 'user-network',
      forwards: [{ hostPort: 40_000, guestPort: 1024 }],
      subnets: [
        {
          family: 'ipv4',
          network: '10.0.0.0',
          prefixLength: 24,
          host: '10.0.0.1',
          guest: '10.0.0.2',
          nameServer: '10.0.0.3',
        },
      ],
    },
  ],
  ['link', { kind: 'vsock', slot: 9, cid: 0, backend: key('vsockd') }, { kind: 'vsock-daemon' }],
  ['console', { kind: 'virtio-console', slot: 2, backend: key('output') }, { kind: 'console' }],
  [
    'item',
    { kind: 'fw-cfg', name: 'opt/a', backend: key('item-content') },
    { kind: 'content', path: '/item' },
  ],
  [
    'folder',
    { kind: 'share', slot: 10, tag: 'folder', backend: key('virtiofsd') },
    { kind: 'virtiofsd', path: '/folder' },
  ],
  [
    'ours',
    { kind: 'share', slot: 11, tag: 'ours', backend: key('own-daemon') },
    { kind: 'vhost-user', socket: '/run/ours.sock' },
  ],
  [
    'nine',
    { kind: 'share', slot: 12, tag: 'nine', backend: key('nine-folder') },
    { kind: 'folder', path: '/nine' },
  ],
]

const PCI: Parts = [
  [
    'nvme',
    { kind: 'disk', interface: 'nvme', slot: 13, serial: 'nvme', backend: key('nvme-file') },
    { kind: 'file', path: '/nvme.img', access: 'read-write' },
  ],
  [
    'memory',
    { kind: 'nvdimm', slot: 1, sizeBytes: 2 << 20, backend: key('memory-file') },
    { kind: 'file', path: '/memory.img', access: 'read-only' },
  ],
  [
    'more-memory',
    { kind: 'nvdimm', slot: 0, sizeBytes: 2 << 20, backend: key('more-memory-file') },
    { kind: 'file', path: '/memory.img', access: 'read-only' },
  ],
  ['bridge', { kind: 'pci-bridge', slot: 14 }],
]

const PORTS: Parts = [
  ['port', { kind: 'root-port', slot: 15 }],
  ['other-port', { kind: 'root-port', slot: 15, func: 1 }],
  [
    'in-port',
    { kind: 'disk', slot: 0, port: key('port'), serial: 'in-port', backend: key('in-port-file') },
    { kind: 'file', path: '/in-port.img', access: 'read-write' },
  ],
  [
    'nic-in-port',
    {
      kind: 'nic',
      slot: 0,
      port: key('other-port'),
      mac: '52:54:00:00:00:01',
      replaceable: true,
      backend: key('t'),
    },
    { kind: 'tap', interfaceName: 'wing1' },
  ],
]

export const MACHINE_PARTS = {
  microvm: EVERYWHERE,
  'pc-i440fx-7.2': [...EVERYWHERE, ...PCI],
  'pc-q35-7.2': [...EVERYWHERE, ...PCI, ...PORTS],
} as const satisfies Partial<Record<Board['machine'], Parts>>
