import { either, object, oneOf } from '../../document/shape.ts'
import { FIXED_MACHINES } from '../../machine.ts'
import { withNote } from '../draft.ts'
import { feature } from '../feature.ts'

const type = oneOf([...FIXED_MACHINES, 'q35', 'pc'])

const VERSIONED = { q35: 'pc-q35-7.2', pc: 'pc-i440fx-7.2' } as const

export const machine = feature({
  name: 'machine',
  summary: 'the board: q35 (default), pc, or microvm, whose hardware may change with QEMU',
  shape: either(type, object({ type }), (short) => ({ type: short })),
  expand: (draft, wish) => {
    const { type: name = draft.defaults.machine } = wish ?? {}
    const fixed = name === 'q35' || name === 'pc' ? VERSIONED[name] : name
    const changed = { ...draft, board: { ...draft.board, machine: fixed } }
    return fixed === 'microvm'
      ? withNote(
          changed,
          'not promised: machine microvm has no versions, so another QEMU may make another one',
        )
      : changed
  },
})
