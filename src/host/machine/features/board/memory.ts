import { refuse } from '../../../spec/component-path.ts'
import { MAX_MEMORY_MIB, MAX_MEMORY_SLOTS } from '../../../spec/limits.ts'
import { either, integer, object, oneOf, optional } from '../../document/shape.ts'
import { hasPci } from '../../machine.ts'
import { feature } from '../feature.ts'

const mib = integer(1, MAX_MEMORY_MIB, 'MiB')
const DEFAULT_MIB = 512

/** Memory that can be added costs the guest's kernel tables, and addresses that a small CPU model has not. */
const MOST_DEDUCED_MIB = 256 * 1024
const GROWTH = 4
const SLOTS = 16

export const memory = feature({
  name: 'memory',
  summary: 'MiB; with `maximum` and `slots` for what can be added while the guest runs',
  shape: either(
    mib,
    object({
      size: optional(mib),
      current: optional(mib),
      maximum: optional(mib),
      slots: optional(integer(0, MAX_MEMORY_SLOTS)),
      hugePages: optional(oneOf(['2M', '1G'])),
    }),
    (size) => ({ size }),
  ),
  expand: (draft, wish = {}, { at }) => {
    const size = wish.size ?? DEFAULT_MIB
    const deduced = Math.max(size, Math.min(size * GROWTH, MOST_DEDUCED_MIB))
    const maximum = wish.maximum ?? (hasPci(draft) && wish.slots !== 0 ? deduced : size)
    const slots = wish.slots ?? (maximum > size ? SLOTS : 0)
    const current = wish.current ?? size
    if (maximum < size) refuse(`${at}.maximum`, `${maximum}: want the size, ${size}, or more`)
    if (current > size) refuse(`${at}.current`, `${current}: want the size, ${size}, or less`)
    if (maximum > size && !hasPci(draft)) refuse(`${at}.maximum`, 'machine microvm has no room for memory')
    if (maximum > size && slots === 0)
      refuse(`${at}.slots`, '0: memory beyond the size takes slots, want 1 or more')
    return {
      ...draft,
      memory: {
        ...{ sizeMib: size, currentMib: current, maximumMib: maximum, slots },
        ...(wish.hugePages && { hugePages: wish.hugePages }),
      },
    }
  },
})
