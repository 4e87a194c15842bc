import { describe, expect, it } from 'vitest'
import { Spec } from '../../src/gen/oci.ts'
import { printJson } from '../../src/oci/json.ts'
import { runtimeConfig } from '../../src/oci/runtime-config.ts'

type PartialSpec = Parameters<typeof Spec.fromPartial>[0]

/** The config as a runtime reads it, except that numbers above 2^53 are rounded. */
function read(spec: PartialSpec) {
  return JSON.parse(printJson(runtimeConfig(Spec.fromPartial(spec))))
}

describe('runtimeConfig', () => {
  it.each(['', '1.0.2-dev', '1.1.0-rc.1-test', '1.2.0', 'x'])(
    'names the version that every runtime knows when the request says "%s"',
    (Version) => {
      expect(read({ Version })).toEqual({ ociVersion: '1.0.2' })
    },
  )

  it('writes process, root, mounts and annotations', () => {
    const config = read({
      Process: {
        Terminal: true,
        ConsoleSize: { Height: 24, Width: 80 },
        User: { UID: 1, GID: 2, AdditionalGids: [3] },
        Args: ['sh'],
        Env: ['A=b'],
        Cwd: '/tmp',
        NoNewPrivileges: true,
        OOMScoreAdj: -5n,
      },
      Root: { Path: '/r', Readonly: true },
      Hostname: 'h',
      Mounts: [{ destination: '/proc', type: 'proc', source: 'proc', options: ['nosuid'] }],
      Annotations: { k: 'v' },
    })
    expect(config).toEqual({
      ociVersion: '1.0.2',
      process: {
        terminal: true,
        consoleSize: { height: 24, width: 80 },
        user: { uid: 1, gid: 2, additionalGids: [3] },
        args: ['sh'],
        env: ['A=b'],
        cwd: '/tmp',
        noNewPrivileges: true,
        oomScoreAdj: -5,
      },
      root: { path: '/r', readonly: true },
      hostname: 'h',
      mounts: [{ destination: '/proc', type: 'proc', source: 'proc', options: ['nosuid'] }],
      annotations: { k: 'v' },
    })
  })

  it('always writes oomScoreAdj, user and cwd', () => {
    expect(read({ Process: {} }).process).toEqual({ user: { uid: 0, gid: 0 }, cwd: '/', oomScoreAdj: 0 })
  })

  it('writes 64-bit numbers unquoted and in full', () => {
    const spec = Spec.fromPartial({
      Process: { Rlimits: [{ Type: 'RLIMIT_CORE', Hard: 18446744073709551615n, Soft: 9007199254740993n }] },
    })
    expect(printJson(runtimeConfig(spec))).toContain('"hard":18446744073709551615,"soft":9007199254740993')
  })

  it('distinguishes empty capability sets from absent ones', () => {
    expect(read({ Process: { Capabilities: {} } }).process.capabilities).toEqual({
      bounding: [],
      effective: [],
      inheritable: [],
      permitted: [],
      ambient: [],
    })
    expect(read({ Process: {} }).process).not.toHaveProperty('capabilities')
  })

  it('keeps each list of hooks apart and a timeout only above 0', () => {
    const hook = (Path: string, Timeout = 0n) => ({ Path, Timeout, Args: [], Env: [] })
    const { hooks } = read({ Hooks: { Poststart: [hook('/a', 5n)], Poststop: [hook('/b', -1n)] } })
    expect(hooks).toEqual({ poststart: [{ path: '/a', timeout: 5 }], poststop: [{ path: '/b' }] })
  })

  it('distinguishes an errno of 0 from an absent one', () => {
    const rule = { Names: ['mount'], Action: 'SCMP_ACT_ERRNO' }
    const { seccomp } = read({
      Linux: { Seccomp: { DefaultAction: 'SCMP_ACT_ALLOW', Syscalls: [{ ...rule, errnoret: 0 }, rule] } },
    }).linux
    expect(seccomp.syscalls).toEqual([
      { names: ['mount'], action: 'SCMP_ACT_ERRNO', errnoRet: 0 },
      { names: ['mount'], action: 'SCMP_ACT_ERRNO' },
    ])
  })

  it('leaves the mode of a device out when it is 0', () => {
    const device = { Path: '/dev/x', Type: 'c', Major: 1n, Minor: 3n }
    const { devices } = read({ Linux: { Devices: [device, { ...device, FileMode: 0o666 }] } }).linux
    const plain = { path: '/dev/x', type: 'c', major: 1, minor: 3, uid: 0, gid: 0 }
    expect(devices).toEqual([plain, { ...plain, fileMode: 0o666 }])
  })
})

describe('resources of runtimeConfig', () => {
  const resources = (Resources: NonNullable<NonNullable<PartialSpec['Linux']>['Resources']>) =>
    read({ Linux: { Resources } }).linux?.resources

  it.each([
    ['a memory limit of -1', { Memory: { Limit: -1n } }, { memory: { limit: -1 } }],
    ['no memory limit', { Memory: {} }, undefined],
    [
      'the OOM killer only when off',
      { Memory: { DisableOOMKiller: true } },
      { memory: { disableOOMKiller: true } },
    ],
    ['a quota of -1', { CPU: { Quota: -1n, Shares: 2n } }, { cpu: { quota: -1, shares: 2 } }],
    ['a pids limit', { Pids: { Limit: 9n } }, { pids: { limit: 9 } }],
    ['no pids limit for 0', { Pids: { Limit: 0n } }, undefined],
    [
      'a device rule with wildcards',
      { Devices: [{ Allow: false, Type: '', Major: -1n, Minor: -1n, Access: 'rwm' }] },
      { devices: [{ allow: false, type: 'a', access: 'rwm' }] },
    ],
    [
      'a device rule with the number 0',
      { Devices: [{ Allow: true, Type: 'b', Major: 7n, Minor: 0n, Access: 'r' }] },
      { devices: [{ allow: true, type: 'b', major: 7, minor: 0, access: 'r' }] },
    ],
    [
      'a device rule with numbers',
      { Devices: [{ Allow: true, Type: 'b', Major: 8n, Minor: 1n, Access: 'r' }] },
      { devices: [{ allow: true, type: 'b', major: 8, minor: 1, access: 'r' }] },
    ],
    [
      'block, network and huge page limits',
      {
        BlockIO: { Weight: 10, ThrottleReadBpsDevice: [{ Major: 8n, Minor: 0n, Rate: 5n }] },
        Network: { ClassID: 1, Priorities: [{ Name: 'eth0', Priority: 2 }] },
        HugepageLimits: [{ Pagesize: '2MB', Limit: 4n }],
      },
      {
        blockIO: { weight: 10, throttleReadBpsDevice: [{ major: 8, minor: 0, rate: 5 }] },
        network: { classID: 1, priorities: [{ name: 'eth0', priority: 2 }] },
        hugepageLimits: [{ pageSize: '2MB', limit: 4 }],
      },
    ],
  ])('writes %s', (_what, message, expected) => {
    expect(resources(message)).toEqual(expected)
  })
})
