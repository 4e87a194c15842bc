import { describe, expect, it } from 'vitest'
import { containerNamespaces } from '../../src/oci/container-spec.ts'

const SHARED = { ipc: '/ns/ipc', uts: '/ns/uts', pid: undefined, cgroup: false }

function namespaces(...entries: readonly (string | readonly [string, string])[]) {
  return entries.map((entry) => {
    const [Type, Path] = typeof entry === 'string' ? [entry, ''] : entry
    return { Type, Path }
  })
}

describe('containerNamespaces', () => {
  it.each([
    ['gives no list a pid namespace', [], SHARED, namespaces('pid')],
    [
      'joins the ipc and uts of the sandbox, whatever path the host sent',
      namespaces(['ipc', '/host'], 'uts'),
      SHARED,
      namespaces(['ipc', '/ns/ipc'], ['uts', '/ns/uts'], 'pid'),
    ],
    [
      'makes ipc and uts anew without a sandbox',
      namespaces(['ipc', '/host'], ['uts', '/host']),
      { ...SHARED, ipc: undefined, uts: undefined },
      namespaces('ipc', 'uts', 'pid'),
    ],
    ['joins the shared pid namespace', [], { ...SHARED, pid: '/ns/pid' }, namespaces(['pid', '/ns/pid'])],
    ['names pid once', namespaces('pid', 'mount'), SHARED, namespaces('pid', 'mount')],
    [
      'names every kind once, the first counts',
      namespaces(['mount', '/a'], ['mount', '/b']),
      SHARED,
      namespaces(['mount', '/a'], 'pid'),
    ],
    [
      'leaves others as they are',
      namespaces(['user', '/u'], 'mount'),
      SHARED,
      namespaces(['user', '/u'], 'mount', 'pid'),
    ],
    ['adds a cgroup namespace on cgroup v2', [], { ...SHARED, cgroup: true }, namespaces('pid', 'cgroup')],
    [
      'keeps a cgroup namespace of the host',
      namespaces(['cgroup', '/c']),
      { ...SHARED, cgroup: true },
      namespaces(['cgroup', '/c'], 'pid'),
    ],
  ])('%s', (_what, requested, shared, expected) => {
    expect(containerNamespaces(requested, shared)).toEqual(expected)
  })
})
