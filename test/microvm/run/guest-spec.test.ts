import { describe, expect, it } from 'vitest'
import { qemuArguments } from '../../../src/host/qemu/qemu-arguments.ts'
import { specKey } from '../../../src/host/spec/spec-key.ts'
import { containerRootSource, type GuestParts, guestSpec } from '../../../src/microvm/run/guest-spec.ts'

const parts: GuestParts = {
  machine: 'q35',
  memoryMib: 512,
  cpus: 1,
  boot: { kernel: '/k', initrd: '/i', root: { path: '/r', type: 'erofs' } },
  containerRoot: '/c',
  link: {
    device: (slot, backend) => ({ kind: 'vsock', slot, cid: 3, backend }),
    backend: { kind: 'vhost-user', socket: '/v' },
    commandLine: ['agent.x=1'],
  },
  append: ['debug'],
}

describe('guestSpec', () => {
  it.each(['q35', 'pc', 'microvm'] as const)('describes a %s for which QEMU has arguments', (machine) => {
    expect(
      qemuArguments(guestSpec({ ...parts, machine }), { acceleration: 'tcg', qmp: { fd: 3 } }),
    ).toContain('-append')
  })

  it('puts vsock where the guest can let it go', () => {
    const placeOn = (machine: GuestParts['machine']) => {
      const { devices } = guestSpec({ ...parts, machine })
      return { link: devices[specKey('link')], port: devices[specKey('link-port')] }
    }
    expect(placeOn('q35')).toMatchObject({
      link: { slot: 0, port: 'link-port' },
      port: { kind: 'root-port', slot: 4 },
    })
    expect(placeOn('pc')).toEqual({ link: expect.objectContaining({ slot: 4 }), port: undefined })
  })

  it('has the kernel mount the root disk read-only', () => {
    const { board, backends } = guestSpec(parts)
    expect(board.commandLine).toBe(
      'console=ttyS0 quiet panic=-1 sysctl.vm.min_free_kbytes=4096 root=/dev/vda rootfstype=erofs ro agent.x=1 debug',
    )
    expect(Object.values(backends)).toContainEqual({ kind: 'file', path: '/r', access: 'read-only' })
  })

  it('leaves a small guest the memory of the tracing’s files', () => {
    const words = (memoryMib: number) => guestSpec({ ...parts, memoryMib }).board.commandLine
    const small = 'sysctl.vm.min_free_kbytes=2048 initcall_blacklist=tracer_init_tracefs '
    expect([words(128).includes(small), words(256).includes('blacklist')]).toEqual([true, false])
  })

  it('never writes into the given images', () => {
    const ext4 = guestSpec({ ...parts, boot: { ...parts.boot, root: { path: '/r', type: 'ext4' } } })
    const accesses = Object.values(ext4.backends).map((backend) =>
      backend.kind === 'file' ? backend.access : '',
    )
    expect(accesses).not.toContain('read-write')
  })

  it('names an NVMe root to a kernel that mounts it without an initrd', () => {
    const root = { path: '/r', type: 'ext4', interface: 'nvme' } as const
    const { board, devices } = guestSpec({ ...parts, boot: { kernel: '/k', initrd: undefined, root } })
    expect(board.commandLine).toContain(' root=/dev/nvme0n1 rootfstype=ext4 ro ')
    expect(board.initrd).toBeUndefined()
    expect(Object.values(devices)).toContainEqual(
      expect.objectContaining({ interface: 'nvme', serial: 'root' }),
    )
  })

  it.each([
    ['virtio-blk', '/dev/vda1', ''],
    ['nvme', '/dev/nvme0n1p1', ''],
    ['nvdimm', '/dev/pmem0p1', ' rootflags=dax swiotlb=noforce'],
  ] as const)('names the partition of a root on %s', (kind, name, flags) => {
    const root = { path: '/r', type: 'erofs', partition: 1, interface: kind, sizeBytes: 4 << 20 } as const
    const { board } = guestSpec({ ...parts, boot: { ...parts.boot, root } })
    expect(board.commandLine).toContain(` root=${name} rootfstype=erofs${flags} ro `)
  })

  it('puts its console at the requested device', () => {
    const { board, devices } = guestSpec({ ...parts, console: 'virtio' })
    expect(board.commandLine).toMatch(/^console=hvc0 /)
    expect(Object.values(devices)).toContainEqual(expect.objectContaining({ kind: 'virtio-console' }))
  })

  it('names no root when the initrd is the root', () => {
    const { board } = guestSpec({ ...parts, boot: { ...parts.boot, root: undefined } })
    expect(board.commandLine).not.toContain('root=')
  })
})

describe('containerRootSource', () => {
  it('is the PCI path of the disk, or its name where there is no PCI', () => {
    expect(containerRootSource(parts)).toBe('05')
    expect(containerRootSource({ ...parts, machine: 'microvm' })).toBe('/dev/vdb')
    const initrd = { ...parts.boot, root: undefined }
    expect(containerRootSource({ machine: 'microvm', boot: initrd })).toBe('/dev/vda')
  })
})
