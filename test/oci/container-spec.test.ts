import { describe, expect, it } from 'vitest'
import { Spec } from '../../src/gen/oci.ts'
import { containerSpec } from '../../src/oci/container-spec.ts'

type PartialSpec = Parameters<typeof Spec.fromPartial>[0]

const GUEST = {
  containerId: 'c1',
  rootfs: '/bundle/rootfs',
  namespaces: { ipc: '/ns/ipc', uts: '/ns/uts', pid: undefined, cgroup: false },
  devices: { updates: [], added: [], pciAddresses: new Map<string, string>() },
  deviceEdits: [],
  deviceModes: new Map([['/dev/known', 0o660]]),
  hooks: { prestart: [], poststart: [], poststop: [] },
  cgroupParent: '/containers',
  nofile: { Type: 'RLIMIT_NOFILE', Hard: 6n, Soft: 5n },
  pids: 100n,
}

function converted(spec: PartialSpec) {
  const complete = { Process: {}, Root: { Path: '/host/root', Readonly: true }, Linux: {}, ...spec }
  return containerSpec(Spec.fromPartial(complete), GUEST)
}

describe('containerSpec', () => {
  it('has a limit of processes, unless the host names one', () => {
    expect(converted({}).spec.Linux.Resources?.Pids).toEqual({ Limit: 100n })
    for (const Limit of [0n, 7n])
      expect(converted({ Linux: { Resources: { Pids: { Limit } } } }).spec.Linux.Resources?.Pids).toEqual({
        Limit,
      })
  })

  it('puts the root into the bundle and keeps it read-only', () => {
    expect(converted({}).spec.Root).toEqual({ Path: '/bundle/rootfs', Readonly: true })
  })

  it("contains the guest's devices, and their addresses in the environment", () => {
    const { spec } = containerSpec(
      Spec.fromPartial({
        Process: { Env: ['PCIDEVICE_X=0000:1a:02.3'] },
        Root: { Path: '/r' },
        Linux: { Devices: [{ Path: '/dev/data', Type: 'b', Major: 8n, Minor: 0n }] },
      }),
      {
        ...GUEST,
        devices: {
          updates: [{ containerPath: '/dev/data', type: 'b', major: 254, minor: 16 }],
          added: [],
          pciAddresses: new Map([['0000:1a:02.3', '0000:01:00.0']]),
        },
      },
    )
    expect(spec.Linux.Devices).toMatchObject([{ Path: '/dev/data', Major: 254n, Minor: 16n }])
    expect(spec.Process.Env).toEqual(['PCIDEVICE_X=0000:01:00.0'])
  })

  it('applies the edits of CDI devices after translating the host’s numbers', () => {
    const host = { Path: '/dev/data', Type: 'b', Major: 8n, Minor: 0n }
    const rule = { Allow: true, Type: 'b', Major: 8n, Minor: 0n, Access: 'r' }
    const node = { path: '/dev/gpu', type: 'b', major: 8, minor: 0, fileMode: 0o660 }
    const edits = { env: ['GPU=1'], mounts: [], hooks: [], additionalGids: [] }
    const { spec, poststart } = containerSpec(
      Spec.fromPartial({
        Process: {},
        Root: { Path: '/r' },
        Linux: { Devices: [host], Resources: { Devices: [rule] } },
      }),
      {
        ...GUEST,
        devices: {
          ...GUEST.devices,
          updates: [{ containerPath: '/dev/data', type: 'b', major: 254, minor: 16 }],
        },
        deviceEdits: [
          {
            ...edits,
            deviceNodes: [{ ...node, permissions: undefined, uid: undefined, gid: undefined }],
            hooks: [{ list: 'Poststart', hook: { Path: '/hook', Args: [], Env: [], Timeout: 0n } }],
          },
        ],
      },
    )
    const numbers = (spec.Linux.Resources?.Devices ?? []).map(({ Major, Minor }) => `${Major}:${Minor}`)
    expect(numbers).toEqual(['254:16', '254:16', '8:0'])
    expect(spec.Linux.Devices.map(({ Path, Major }) => `${Path} ${Major}`)).toEqual([
      '/dev/data 254',
      '/dev/gpu 8',
    ])
    expect(spec.Process.Env).toEqual(['GPU=1'])
    expect(poststart).toMatchObject([{ Path: '/hook', Timeout: 10n }])
  })

  it('does not translate an address that a CDI device sets', () => {
    const devices = { ...GUEST.devices, pciAddresses: new Map([['0000:01:00.0', '0000:02:00.0']]) }
    const edits = { deviceNodes: [], mounts: [], hooks: [], additionalGids: [] }
    const { spec } = containerSpec(
      Spec.fromPartial({
        Process: { Env: ['PCIDEVICE_HOST=0000:01:00.0'] },
        Root: { Path: '/r' },
        Linux: {},
      }),
      { ...GUEST, devices, deviceEdits: [{ ...edits, env: ['PCIDEVICE_GUEST=0000:01:00.0'] }] },
    )
    expect(spec.Process.Env).toEqual(['PCIDEVICE_HOST=0000:02:00.0', 'PCIDEVICE_GUEST=0000:01:00.0'])
  })

  it('drops the host name when the container joins a uts namespace', () => {
    const Namespaces = [{ Type: 'uts', Path: '' }]
    expect(converted({ Hostname: 'h', Linux: { Namespaces } }).spec.Hostname).toBe('')
    expect(converted({ Hostname: 'h' }).spec.Hostname).toBe('h')
  })

  it('removes net sysctls for the guest, unless the container has its own network', () => {
    const Sysctl = { 'net.core.somaxconn': '9', 'kernel.shmmax': '1' }
    const shared = converted({ Linux: { Sysctl } })
    expect(shared.spec.Linux.Sysctl).toEqual({ 'kernel.shmmax': '1' })
    expect(shared.guestSysctls).toEqual([{ path: '/proc/sys/net/core/somaxconn', value: '9' }])
    const own = converted({ Linux: { Sysctl, Namespaces: [{ Type: 'network', Path: '' }] } })
    expect(own.spec.Linux.Sysctl).toEqual(Sysctl)
    expect(own.guestSysctls).toEqual([])
  })

  it.each([
    ['net.ipv4.conf.eth0/1.forwarding', '/proc/sys/net/ipv4/conf/eth0.1/forwarding'],
    ['net/ipv4/conf/eth0.1/forwarding', '/proc/sys/net/ipv4/conf/eth0.1/forwarding'],
  ])('reads the sysctl name %s as sysctl does', (name, path) => {
    expect(converted({ Linux: { Sysctl: { [name]: '1' } } }).guestSysctls).toEqual([{ path, value: '1' }])
  })

  it.each(['net/../kernel/x', 'net..x', 'net./../x.y', 'net.x\0y'])('refuses the sysctl name %j', (name) => {
    expect(() => converted({ Linux: { Sysctl: { [name]: '1' } } })).toThrow(
      expect.objectContaining({ code: 'INVALID_ARGUMENT' }),
    )
  })

  it('adds the missing option of a bind mount', () => {
    const mount = (options: string[]) => ({ destination: '/d', source: '/s', type: 'bind', options })
    const { Mounts } = converted({ Mounts: [mount(['ro']), mount(['bind']), mount(['rbind', 'ro'])] }).spec
    expect(Mounts.map(({ options }) => options)).toEqual([['ro', 'rbind'], ['bind'], ['rbind', 'ro']])
  })

  it('sets RLIMIT_NOFILE unless the host sets it', () => {
    const given = { Type: 'RLIMIT_NOFILE', Hard: 7n, Soft: 7n }
    expect(converted({}).spec.Process.Rlimits).toEqual([GUEST.nofile])
    expect(converted({ Process: { Rlimits: [given] } }).spec.Process.Rlimits).toEqual([given])
  })

  it('uses the guest’s device mode when the host sent none', () => {
    const device = (Path: string, FileMode: number) => ({ Path, FileMode, Type: 'c' })
    const Devices = [device('/dev/known', 0), device('/dev/known', 0o600), device('/dev/other', 0)]
    const modes = converted({ Linux: { Devices } }).spec.Linux.Devices.map(({ FileMode }) => FileMode)
    expect(modes).toEqual([0o660, 0o600, 0])
  })

  it.each([
    ['', '/containers/c1'],
    ['a:b:c', '/containers/a/b/c'],
    [':kata:c1', '/containers/kata/c1'],
    ['/pod/c1', '/containers/pod/c1'],
    ['pod/c1', '/containers/pod/c1'],
    ['/', '/containers/c1'],
    ['::', '/containers/c1'],
  ])('puts the cgroups path %s at %s', (CgroupsPath, expected) => {
    expect(converted({ Linux: { CgroupsPath } }).spec.Linux.CgroupsPath).toBe(expected)
  })

  it.each([
    ['linux', { Linux: undefined }, 'Spec does not contain linux field'],
    ['root', { Root: undefined }, 'EINVAL: Invalid argument: the OCI spec has no root'],
    ['process', { Process: undefined }, 'EINVAL: Invalid argument: the OCI spec has no process'],
  ])('refuses a spec without %s', (_what, spec, message) => {
    expect(() => converted(spec)).toThrow(expect.objectContaining({ code: 'INTERNAL', message }))
  })

  it('refuses a request without a spec', () => {
    expect(() => containerSpec(undefined, GUEST)).toThrow('EINVAL')
  })
})
