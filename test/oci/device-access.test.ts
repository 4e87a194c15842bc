import { describe, expect, it } from 'vitest'
import { type DeepPartial, Linux, Process } from '../../src/gen/oci.ts'
import { withDeviceAccess } from '../../src/oci/container-spec.ts'

const ALL = ['CAP_SYS_ADMIN', 'CAP_SYS_RAWIO', 'CAP_MKNOD', 'CAP_CHOWN']
const FUSE = { Path: '/dev/fuse', Type: 'c', Major: 10n, Minor: 229n }
const ALLOW_FUSE = { Allow: true, Type: 'c', Major: 10n, Minor: 229n, Access: 'rwm' }
const ALLOW_ALL = { Allow: true, Type: 'a', Major: -1n, Minor: -1n, Access: 'rwm' }

function rulesFor(linux: DeepPartial<Linux>, capabilities: readonly string[] = []) {
  const sets = { Bounding: [...capabilities], Effective: [...capabilities] }
  const process = Process.fromPartial({ Capabilities: sets })
  return withDeviceAccess(Linux.fromPartial(linux), process).Resources?.Devices
}

describe('withDeviceAccess', () => {
  it('allows each node of the container, after the rules of the request', () => {
    const deny = { Allow: false, Type: 'a', Major: -1n, Minor: -1n, Access: 'rwm' }
    expect(rulesFor({ Devices: [FUSE], Resources: { Devices: [deny] } })).toEqual([deny, ALLOW_FUSE])
    expect(rulesFor({ Devices: [FUSE] })).toEqual([ALLOW_FUSE])
  })

  it('adds no rule twice, and none for a fifo', () => {
    expect(rulesFor({ Devices: [FUSE], Resources: { Devices: [ALLOW_FUSE] } })).toEqual([ALLOW_FUSE])
    expect(rulesFor({ Devices: [{ Path: '/dev/pipe', Type: 'p' }] })).toBeUndefined()
  })

  it('allows everything to a privileged container, though its host has not all capabilities', () => {
    expect(rulesFor({}, ALL)).toEqual([ALLOW_ALL])
    expect(rulesFor({ Devices: [FUSE] }, ALL)).toEqual([ALLOW_FUSE, ALLOW_ALL])
  })

  it.each<[string, DeepPartial<Linux>, readonly string[]]>([
    ['masked paths', { MaskedPaths: ['/proc/kcore'] }, ALL],
    ['read-only paths', { ReadonlyPaths: ['/proc/sys'] }, ALL],
    ['no CAP_SYS_ADMIN', {}, ['CAP_SYS_RAWIO', 'CAP_MKNOD']],
    ['no CAP_SYS_RAWIO', {}, ['CAP_SYS_ADMIN', 'CAP_MKNOD']],
    ['no CAP_MKNOD', {}, ['CAP_SYS_ADMIN', 'CAP_SYS_RAWIO']],
    ['no capabilities', {}, []],
  ])('allows nothing more to a container with %s', (_what, linux, capabilities) => {
    expect(rulesFor(linux, capabilities)).toBeUndefined()
  })
})
