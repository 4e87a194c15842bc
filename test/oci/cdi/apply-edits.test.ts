import { describe, expect, it } from 'vitest'
import { Linux, Process, Spec } from '../../../src/gen/oci.ts'
import { type ResolvedEdits, withContainerEdits } from '../../../src/oci/cdi/apply-edits.ts'
import type { ResolvedNode } from '../../../src/oci/cdi/container-edits.ts'

type PartialSpec = Parameters<typeof Spec.fromPartial>[0]

describe('withContainerEdits', () => {
  it('changes nothing without edits', () => {
    const spec = specOf({ Process: { Args: ['sh'] } })
    expect(withContainerEdits(spec, [])).toBe(spec)
    expect(withContainerEdits(spec, [editsOf({})])).toEqual(spec)
  })

  it('sets variables, and uses the last of equal names', () => {
    const spec = specOf({ Process: { Env: ['PATH=/bin', 'A=0', 'AB=0'] } })
    const { Process } = withContainerEdits(spec, [
      editsOf({ env: ['A=1', 'B=1'] }),
      editsOf({ env: ['B=2'] }),
    ])
    expect(Process.Env).toEqual(['PATH=/bin', 'AB=0', 'A=1', 'B=2'])
  })

  it('adds a node, and a rule that allows the permissions of the node', () => {
    const { Linux } = apply({}, { deviceNodes: [node({ permissions: 'rw', minor: 7 })] })
    const numbers = { Type: 'c', Major: 195n, Minor: 7n }
    expect(Linux.Devices).toEqual([{ Path: '/dev/gpu', ...numbers, FileMode: 0o660, UID: 0, GID: 0 }])
    expect(Linux.Resources?.Devices).toEqual([{ Allow: true, ...numbers, Access: 'rw' }])
  })

  it('allows all access to a node without permissions, and adds no rule for a fifo', () => {
    const { Linux } = apply({}, { deviceNodes: [node({ type: 'u' }), node({ path: '/dev/f', type: 'p' })] })
    expect(Linux.Resources?.Devices).toMatchObject([{ Type: 'c', Access: 'rwm' }])
    expect(Linux.Devices).toHaveLength(2)
  })

  it('adds no rule for a node with the permissions none', () => {
    const { Linux } = apply({}, { deviceNodes: [node({ permissions: 'none' })] })
    expect(Linux.Devices).toHaveLength(1)
    expect(Linux.Resources?.Devices).toEqual([])
  })

  it('replaces a node at the same path', () => {
    const own = { Path: '/dev/gpu', Type: 'c', Major: 1n, Minor: 3n }
    const { Linux } = apply({ Linux: { Devices: [own] } }, { deviceNodes: [node({}), node({ minor: 9 })] })
    expect(Linux.Devices.map(({ Minor }) => Minor)).toEqual([9n])
  })

  it('gives a node without owner to the user of the container', () => {
    const user = { Process: { User: { UID: 1000, GID: 1001 } } }
    const { Linux } = apply(user, { deviceNodes: [node({}), node({ path: '/dev/b', uid: 0, gid: 44 })] })
    expect(Linux.Devices).toMatchObject([
      { UID: 1000, GID: 1001 },
      { UID: 0, GID: 44 },
    ])
  })

  it('replaces a mount at the same path, and puts it before the mounts that it would hide', () => {
    const mounts = ['/proc', '/data', '/lib/x', '/lib/y'].map((destination) => ({
      destination,
      type: 'tmpfs',
    }))
    const added = ['/data', '/lib', '/z'].map(bind)
    const { Mounts } = apply({ Mounts: mounts }, { mounts: added })
    expect(Mounts.map(({ destination }) => destination)).toEqual([
      '/proc',
      '/lib',
      '/lib/x',
      '/lib/y',
      '/data',
      '/z',
    ])
    expect(Mounts[4]).toMatchObject({ type: 'bind' })
  })

  it('adds hooks to the lists they name', () => {
    const hook = (Path: string) => ({ Path, Args: [], Env: [], Timeout: 0n })
    const { Hooks } = apply(
      { Hooks: { Prestart: [{ Path: '/first' }] } },
      {
        hooks: [
          { list: 'Prestart', hook: hook('/second') },
          { list: 'Poststop', hook: hook('/last') },
        ],
      },
    )
    expect(Hooks?.Prestart.map(({ Path }) => Path)).toEqual(['/first', '/second'])
    expect(Hooks?.Poststop.map(({ Path }) => Path)).toEqual(['/last'])
  })

  it('adds groups that the user is not in yet', () => {
    const { Process } = apply(
      { Process: { User: { AdditionalGids: [44] } } },
      { additionalGids: [44, 0, 109] },
    )
    expect(Process.User?.AdditionalGids).toEqual([44, 109])
  })
})

function apply(spec: PartialSpec, edits: Partial<ResolvedEdits>) {
  return withContainerEdits(specOf(spec), [editsOf(edits)])
}

function specOf(partial: PartialSpec) {
  const spec = Spec.fromPartial(partial)
  return { ...spec, Process: spec.Process ?? Process.create(), Linux: spec.Linux ?? Linux.create() }
}

function editsOf(edits: Partial<ResolvedEdits>): ResolvedEdits {
  return { env: [], deviceNodes: [], mounts: [], hooks: [], additionalGids: [], ...edits }
}

function node(changes: Partial<ResolvedNode>): ResolvedNode {
  return {
    path: '/dev/gpu',
    type: 'c',
    major: 195,
    minor: 0,
    fileMode: 0o660,
    permissions: undefined,
    uid: undefined,
    gid: undefined,
    ...changes,
  }
}

function bind(destination: string) {
  return { source: `/guest${destination}`, destination, type: 'bind', options: [] }
}
