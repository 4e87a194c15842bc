import { describe, expect, it } from 'vitest'
import { firstDifference } from '../../../src/host/spec/first-difference.ts'
import type { VmSpec } from '../../../src/host/spec/spec.ts'
import { specKey } from '../../../src/host/spec/spec-key.ts'
import { BOARD, MACHINE_PARTS, specOf } from '../../support/host/specs.ts'

const parts = MACHINE_PARTS['pc-q35-7.2']
const spec = specOf(parts)

describe('firstDifference', () => {
  it('is none between equal specifications in another order', () => {
    const reversed = <T>(map: Readonly<Record<string, T>>) =>
      Object.fromEntries(Object.entries(map).reverse())
    const same = { ...spec, devices: reversed(spec.devices), backends: reversed(spec.backends) }
    expect(firstDifference(spec, same)).toBeUndefined()
  })

  it('is none between an unset value and what it stands for', () => {
    expect(firstDifference(spec, { ...spec, rebootLimit: { count: 3, seconds: 60 } })).toBeUndefined()
    expect(
      firstDifference(spec, { ...spec, limits: { memoryMib: 0, cpuMilli: 0, tasks: 0 } }),
    ).toBeUndefined()
    expect(firstDifference(spec, specOf(parts, { vmlinux: undefined }))).toBeUndefined()
  })

  const root = { kind: 'disk', slot: 3, serial: 'root', backend: specKey('root-file') } as const
  const withRoot = (device: VmSpec['devices'][ReturnType<typeof specKey>]): VmSpec => ({
    ...spec,
    devices: { ...spec.devices, [specKey('root')]: device },
  })
  it.each<[string, VmSpec]>([
    ['devices.root.slot', withRoot({ ...root, slot: 20 })],
    ['devices.root.disk.serial', withRoot({ ...root, serial: 'other' })],
    ['devices.root.disk', withRoot({ kind: 'pci-bridge', slot: 3 })],
    ['board.cpus', { ...spec, board: { ...BOARD, cpus: 2 } }],
    ['board.room', { ...spec, board: { ...BOARD, room: { cpus: 1, memoryMib: 0, memorySlots: 0 } } }],
    ['reboot_limit.count', { ...spec, rebootLimit: { count: 4, seconds: 60 } }],
    ['limits.tasks', { ...spec, limits: { memoryMib: 0, cpuMilli: 0, tasks: 99 } }],
    ['devices["a b"]', { ...spec, devices: { ...spec.devices, [specKey('a b')]: root } }],
    ['devices.toString', { ...spec, devices: { ...spec.devices, [specKey('toString')]: root } }],
    [
      'backends["scratch \\"file\\""].file.access',
      {
        ...spec,
        backends: {
          ...spec.backends,
          [specKey('scratch "file"')]: { kind: 'file', path: '/scratch.img', access: 'read-only' },
        },
      },
    ],
  ])('names the path %s', (path, changed) => {
    expect([firstDifference(spec, changed), firstDifference(changed, spec)]).toEqual(
      path === 'devices.root.disk' ? ['devices.root.backend', 'devices.root.backend'] : [path, path],
    )
  })
})
