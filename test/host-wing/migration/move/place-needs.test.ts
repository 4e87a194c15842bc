import { describe, expect, it } from 'vitest'
import { Specification } from '../../../../src/gen/microvm/instance/v1/instance.ts'
import { placeNeeds } from '../../../../src/host/migration/move/place-needs.ts'

const QEMU = 'QEMU 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18)'

describe('placeNeeds', () => {
  it('names the bridges of taps, the disks that are written, and the version of QEMU', () => {
    const specification = Specification.fromPartial({
      backends: {
        lan: { tap: { bridge: 'br0' } },
        lan2: { tap: { bridge: 'br0' } },
        routed: { tap: { interfaceName: 'tap0' } },
        root: { file: { path: '/images/root', access: 1 } },
        data: { file: { path: '/srv/./db//data', access: 2 } },
        agent: { vsockDaemon: {} },
      },
    })
    expect(placeNeeds(specification, { qemu: QEMU })).toEqual({
      networks: ['br0'],
      qemuVersion: '7.2.22',
      sharedPaths: ['/srv/db/data'],
    })
  })

  it('names no version that it cannot read', () => {
    expect(placeNeeds({ backends: {} }, { qemu: 'QEMU next' })).toMatchObject({ qemuVersion: '' })
  })
})
