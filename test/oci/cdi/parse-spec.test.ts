import { describe, expect, it } from 'vitest'
import { parseCdiSpec } from '../../../src/oci/cdi/parse-spec.ts'

const LEAST = { cdiVersion: '0.6.0', kind: 'nvidia.com/gpu', devices: [{ name: '0', containerEdits: {} }] }

const NOTHING = { env: [], deviceNodes: [], mounts: [], hooks: [], additionalGids: [] }

describe('parseCdiSpec', () => {
  it('reads a minimal specification', () => {
    expect(parseCdiSpec(LEAST)).toEqual({
      kind: 'nvidia.com/gpu',
      edits: NOTHING,
      devices: new Map([['0', NOTHING]]),
    })
  })

  it('reads everything that a device can change', () => {
    const { edits } = withEdits({
      env: ['A=1'],
      deviceNodes: [
        {
          path: '/dev/a',
          hostPath: '/dev/b',
          type: 'c',
          major: 195,
          minor: 0,
          fileMode: 0o660,
          permissions: 'rw',
          uid: 1,
          gid: 2,
        },
      ],
      mounts: [{ hostPath: '/lib/a', containerPath: '/lib/b', options: ['ro', 'nosuid'] }],
      hooks: [
        { hookName: 'createContainer', path: '/bin/hook', args: ['hook', 'x'], env: ['B=2'], timeout: 3 },
      ],
      additionalGids: [44],
    })
    expect(edits).toEqual({
      env: ['A=1'],
      deviceNodes: [
        {
          path: '/dev/a',
          hostPath: '/dev/b',
          type: 'c',
          major: 195,
          minor: 0,
          fileMode: 0o660,
          permissions: 'rw',
          uid: 1,
          gid: 2,
        },
      ],
      mounts: [{ source: '/lib/a', destination: '/lib/b', type: 'bind', options: ['ro', 'nosuid'] }],
      hooks: [
        {
          list: 'CreateContainer',
          hook: { Path: '/bin/hook', Args: ['hook', 'x'], Env: ['B=2'], Timeout: 3n },
        },
      ],
      additionalGids: [44],
    })
  })

  it('accepts a mount that is not a bind mount, whose source need not be a path', () => {
    const mount = { hostPath: 'tmpfs', containerPath: '/scratch', type: 'tmpfs', options: ['size=1m'] }
    expect(withEdits({ mounts: [mount] }).edits.mounts).toEqual([
      { source: 'tmpfs', destination: '/scratch', type: 'tmpfs', options: ['size=1m'] },
    ])
  })

  it('accepts an empty argument of a hook', () => {
    const hook = { hookName: 'prestart', path: '/bin/hook', args: ['hook', ''] }
    expect(withEdits({ hooks: [hook] }).edits.hooks).toMatchObject([{ hook: { Args: ['hook', ''] } }])
  })

  it('accepts the permissions none', () => {
    const [node] = withEdits({ deviceNodes: [{ path: '/a', permissions: 'none' }] }).edits.deviceNodes
    expect(node?.permissions).toBe('none')
  })

  it('reads a number as a name', () => {
    const { devices } = parseCdiSpec({ ...LEAST, devices: [{ name: 0, containerEdits: {} }] })
    expect([...devices.keys()]).toEqual(['0'])
  })

  it.each([
    ['no mapping', 'text', 'specification: string, want a mapping'],
    ['nothing', undefined, 'cdiVersion: missing'],
    ['no version', { ...LEAST, cdiVersion: undefined }, 'cdiVersion: missing'],
    ['an unknown version', { ...LEAST, cdiVersion: '2.0.0' }, 'cdiVersion: unknown version "2.0.0"'],
    ['no kind', { ...LEAST, kind: undefined }, 'kind: missing'],
    ['a kind of another form', { ...LEAST, kind: 'gpu' }, 'kind: "gpu", want vendor/class'],
    ['a field that nobody knows', { ...LEAST, more: 1 }, 'specification: unknown field "more"'],
    ['devices that are no list', { ...LEAST, devices: {} }, 'devices: object, want a list'],
    ['a device without edits', { ...LEAST, devices: [{ name: 'a' }] }, 'devices[0].containerEdits: missing'],
    [
      'a name twice',
      { ...LEAST, devices: [...LEAST.devices, ...LEAST.devices] },
      'devices[1].name: "0" given twice',
    ],
    [
      'a name of another form',
      { ...LEAST, devices: [{ name: '../x', containerEdits: {} }] },
      'devices[0].name: "../x", want a device name',
    ],
  ])('refuses %s and names the field', (_, value, message) => {
    expect(() => parseCdiSpec(value)).toThrow(message)
  })

  it.each([
    [{ env: ['A'] }, 'env[0]: "A", want NAME=value'],
    [{ env: 'A=1' }, 'env: string, want a list'],
    [{ intelRdt: {} }, 'unknown field "intelRdt"'],
    [{ deviceNodes: [{}] }, 'deviceNodes[0].path: missing'],
    [{ deviceNodes: [{ path: 'dev/a' }] }, 'deviceNodes[0].path: "dev/a", want an absolute path'],
    [{ deviceNodes: [{ path: '/dev/../a' }] }, 'deviceNodes[0].path: "/dev/../a", want an absolute path'],
    [{ deviceNodes: [{ path: '/a', type: 'z' }] }, 'deviceNodes[0].type: "z", want b, c, u or p'],
    [{ deviceNodes: [{ path: '/a', major: '1' }] }, 'deviceNodes[0].major: string, want a whole number'],
    [{ deviceNodes: [{ path: '/a', minor: -1 }] }, 'deviceNodes[0].minor: -1, want 0 to'],
    [{ deviceNodes: [{ path: '/a', major: 4096 }] }, 'deviceNodes[0].major: 4096, want 0 to 4095'],
    [
      { deviceNodes: [{ path: '/a', permissions: 'x' }] },
      'deviceNodes[0].permissions: "x", want letters of rwm, or none',
    ],
    [{ mounts: [{ containerPath: '/a' }] }, 'mounts[0].hostPath: missing'],
    [{ mounts: [{ hostPath: 'a', containerPath: '/a' }] }, 'mounts[0].hostPath: "a", want an absolute path'],
    [
      { mounts: [{ hostPath: '../a', containerPath: '/a', type: 'none', options: ['ro', 'rbind'] }] },
      'mounts[0].hostPath: "../a", want an absolute path',
    ],
    [{ mounts: [{ hostPath: '/a', containerPath: '/b\0' }] }, 'mounts[0].containerPath: contains a NUL byte'],
    [{ hooks: [{ hookName: 'afterwards', path: '/x' }] }, 'hooks[0].hookName: unknown hook "afterwards"'],
    [{ hooks: [{ hookName: 'poststop' }] }, 'hooks[0].path: missing'],
    [{ hooks: [{ hookName: 'poststop', path: '/x', args: ['a\0b'] }] }, 'args[0]: contains a NUL byte'],
    [{ additionalGids: [1.5] }, 'additionalGids[0]: 1.5, want a whole number'],
  ])('refuses the edits %j and names the field', (edits, message) => {
    expect(() => withEdits(edits)).toThrow(`containerEdits`)
    expect(() => withEdits(edits)).toThrow(message)
  })

  function withEdits(containerEdits: object) {
    return parseCdiSpec({ ...LEAST, containerEdits })
  }
})
