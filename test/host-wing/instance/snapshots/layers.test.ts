import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { Layer, Snapshot } from '../../../../src/gen/microvm/instance/v1/instance.ts'
import {
  changed,
  type Layers,
  layersUpTo,
  nextChange,
} from '../../../../src/host/instance/snapshots/layers.ts'

const BASE = '/disk'

function layer(id: number, parent: number, active = false): Layer {
  return Layer.fromPartial({ id, parent, backend: 'file', base: BASE, active })
}

function snapshot(name: string, at: number): Snapshot {
  return Snapshot.fromPartial({
    name,
    disks: [{ device: 'disk', backend: 'file', layer: at }],
    specification: { backends: { file: { file: { path: BASE } } } },
  })
}

describe('the next change of layers', () => {
  it.each<[string, Layers, unknown]>([
    ['without layers', { layers: [], snapshots: [] }, undefined],
    ['of a layer on a snapshot', { layers: [layer(1, 0, true)], snapshots: [snapshot('a', 0)] }, undefined],
    [
      'of a layer without a snapshot',
      { layers: [layer(1, 0, true)], snapshots: [] },
      { kind: 'merge', layer: { id: 1 }, into: undefined },
    ],
    [
      'of a snapshot in the middle that is gone',
      { layers: [layer(1, 0), layer(2, 1, true)], snapshots: [snapshot('a', 0)] },
      { kind: 'merge', layer: { id: 2 }, into: { id: 1 } },
    ],
    [
      'of a layer that a revert has left',
      { layers: [layer(1, 0), layer(2, 0, true)], snapshots: [snapshot('a', 0)] },
      { kind: 'drop', layer: { id: 1 } },
    ],
    [
      'of a layer below two others',
      {
        layers: [layer(1, 0), layer(2, 1, true), layer(3, 1)],
        snapshots: [snapshot('a', 0), snapshot('b', 3)],
      },
      undefined,
    ],
    [
      'of a snapshot of another file',
      {
        layers: [layer(1, 0, true), { ...layer(2, 0, true), base: '/other' }],
        snapshots: [snapshot('a', 0)],
      },
      { kind: 'merge', layer: { id: 2 }, into: undefined },
    ],
  ])('%s', (_, layers, expected) => {
    const next = nextChange(layers)
    if (expected === undefined) expect(next).toBeUndefined()
    else expect(next).toMatchObject(expected as object)
  })

  /** What a disk has is the set of the layers that were written, from the lowest on. */
  it('keeps what each snapshot and the guest see, and leaves no more layers than snapshots', () => {
    const trees = fc.array(fc.tuple(fc.nat(), fc.boolean()), { maxLength: 12 })
    fc.assert(
      fc.property(trees, fc.nat(), (shape, chosen) => {
        const ids = shape.map((_, index) => index + 1)
        const parents = shape.map(([parent], index) => parent % (index + 1))
        const leaves = [0, ...ids].filter((id) => !parents.includes(id))
        const active = leaves[chosen % leaves.length] ?? 0
        const layers = ids.map((id, index) => layer(id, parents[index] ?? 0, id === active))
        const snapshots = shape.flatMap(([, isKept], index) => (isKept ? [snapshot(`s${index}`, index)] : []))
        const content = new Map<number, readonly number[]>([[0, []]])
        for (const id of ids)
          content.set(
            id,
            layersUpTo(layers, id).map((each) => each.id),
          )
        let state: Layers = { layers, snapshots }
        const seen = ({ layers: present, snapshots: kept }: Layers) => [
          content.get(present.find((each) => each.active)?.id ?? 0),
          ...kept.map(({ disks: [disk] }) => content.get(disk?.layer ?? 0)),
        ]
        const before = seen(state)
        for (let next = nextChange(state); next !== undefined; next = nextChange(state)) {
          if (next.kind === 'merge') content.set(next.into?.id ?? 0, content.get(next.layer.id) ?? [])
          const count = state.layers.length
          state = changed(state, next)
          expect(state.layers).toHaveLength(count - 1)
        }
        expect(seen(state)).toEqual(before)
        expect(state.layers.length).toBeLessThanOrEqual(2 * snapshots.length)
      }),
    )
  })
})
