import { describe, expect, it } from 'vitest'
import { deviceParts } from '../../../src/host/qemu/device-parts.ts'
import { replaceableParts } from '../../../src/host/qemu/netdev-parts.ts'
import { plugCommand, removeCommand } from '../../../src/host/qemu/parts.ts'
import type { Backend, Device } from '../../../src/host/spec/spec.ts'
import { specKey } from '../../../src/host/spec/spec-key.ts'
import { specOf } from '../../support/host/specs.ts'

const key = specKey('d')
const backend = specKey('b')
const host = { sockets: new Map([[backend, '/run/s']]) }
const partsOf = (device: Device, provided: Backend) =>
  deviceParts(specOf([['d', device, provided]]), key, host)
const disk = { kind: 'disk', slot: 3, serial: 's', backend } as const
const nic = { kind: 'nic', slot: 4, mac: '52:54:00:00:00:02', replaceable: true, backend } as const

describe('plugCommand', () => {
  it('makes the nodes and the device of a disk', () => {
    const parts = partsOf(disk, { kind: 'file', path: '/a,b', access: 'read-only' })
    expect(parts.map(plugCommand)).toEqual([
      {
        execute: 'blockdev-add',
        arguments: { driver: 'file', 'node-name': 'name-b.a', filename: '/a,b', 'read-only': true },
      },
      {
        execute: 'blockdev-add',
        arguments: { driver: 'raw', 'node-name': 'name-b', file: 'name-b.a', 'read-only': true },
      },
      {
        execute: 'device_add',
        arguments: { driver: 'virtio-blk-pci', addr: '0x3', id: 'name-d', drive: 'name-b', serial: 's' },
      },
    ])
  })

  it('makes the nested objects of a socket', () => {
    const parts = partsOf({ ...nic, replaceable: false }, { kind: 'passt' })
    expect(parts.map(plugCommand)[0]).toEqual({
      execute: 'netdev_add',
      arguments: { type: 'stream', id: 'name-b', addr: { type: 'unix', path: '/run/s' } },
    })
  })

  it('makes the connection to a daemon', () => {
    const share = { kind: 'share', slot: 4, tag: 't', backend } as const
    expect(partsOf(share, { kind: 'virtiofsd', path: '/x' }).map(plugCommand)[0]).toEqual({
      execute: 'chardev-add',
      arguments: {
        id: 'name-b',
        backend: {
          type: 'socket',
          data: { addr: { type: 'unix', data: { path: '/run/s' } }, server: false },
        },
      },
    })
  })

  it.each<[string, Device, Backend]>([
    ['drive', disk, { kind: 'file', path: '/a', access: 'scratch' }],
    ['fsdev', { kind: 'share', slot: 4, tag: 't', backend }, { kind: 'folder', path: '/x' }],
    ['fw_cfg', { kind: 'fw-cfg', name: 'opt/a', backend }, { kind: 'content', path: '/x' }],
    ['chardev stdio', { kind: 'virtio-console', slot: 4, backend }, { kind: 'console' }],
  ])('refuses what QEMU makes at its start only: %s', (what, device, provided) => {
    expect(() => partsOf(device, provided).map(plugCommand)).toThrow(
      `QEMU cannot add a ${what} to a running machine`,
    )
  })
})

describe('removeCommand', () => {
  it('removes all but the device, which the guest lets go', () => {
    const parts = partsOf(disk, { kind: 'file', path: '/a', access: 'read-write' })
    expect(parts.toReversed().map(removeCommand)).toEqual([
      undefined,
      { execute: 'blockdev-del', arguments: { 'node-name': 'name-b' } },
      { execute: 'blockdev-del', arguments: { 'node-name': 'name-b.a' } },
    ])
  })

  it('removes the network behind a hub, and leaves the card at its port', () => {
    const spec = specOf([['d', nic, { kind: 'passt' }]])
    expect(replaceableParts(spec, nic, host).toReversed().map(removeCommand)).toEqual([
      { execute: 'netdev_del', arguments: { id: 'name-b.port' } },
      { execute: 'netdev_del', arguments: { id: 'name-b.net' } },
    ])
  })

  it('removes persistent memory and the connection to a daemon', () => {
    const memory = partsOf(
      { kind: 'nvdimm', sizeBytes: 2 << 20, backend },
      { kind: 'file', path: '/a', access: 'read-only' },
    )
    const vsock = partsOf({ kind: 'vsock', slot: 4, cid: 3, backend }, { kind: 'vsock-daemon' })
    expect([...memory, ...vsock].map(removeCommand)).toEqual([
      { execute: 'object-del', arguments: { id: 'name-b' } },
      undefined,
      { execute: 'chardev-remove', arguments: { id: 'name-b' } },
      undefined,
    ])
  })
})
