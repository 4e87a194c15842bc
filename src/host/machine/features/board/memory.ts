import { refuse } from '../../../spec/component-path.ts'
import { MAX_MEMORY_MIB, MAX_MEMORY_SLOTS } from '../../../spec/limits.ts'
import { either, integer, object, oneOf, optional } from '../../document/shape.ts'
import { hasPci } from '../../machine.ts'
import { feature } from '../feature.ts'

const mib = integer(1, MAX_MEMORY_MIB, 'MiB')

/** Bits of an address of RAM that each model of QEMU has, and what lies above the RAM: holes of PCI, and the rounding of each slot. */
const ADDRESS_BITS = 40
const ABOVE_MIB = 40 * 1024
const MIB_PER_SLOT = 1024

const HUGE_MIB = { '2M': 2, '1G': 1024 } as const

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
    const { growth, mostMib, sizeMib, slots: usualSlots } = draft.defaults.memory
    const size = wish.size ?? sizeMib
    const deduced = Math.max(size, Math.min(size * growth, mostMib))
    const maximum = wish.maximum ?? (hasPci(draft) && wish.slots !== 0 ? deduced : size)
    const slots = wish.slots ?? (maximum > size ? usualSlots : 0)
    const current = wish.current ?? size
    if (maximum < size) refuse(`${at}.maximum`, `${maximum}: want the size, ${size}, or more`)
    if (current > size) refuse(`${at}.current`, `${current}: want the size, ${size}, or less`)
    if (maximum > size && !hasPci(draft)) refuse(`${at}.maximum`, 'machine microvm has no room for memory')
    if (maximum > size && slots === 0)
      refuse(`${at}.slots`, '0: memory beyond the size takes slots, want 1 or more')
    const most = 2 ** (ADDRESS_BITS - 20) - ABOVE_MIB - slots * MIB_PER_SLOT
    if (maximum > most && draft.cpu.match === 'exact') {
      const field = wish.maximum === undefined ? 'size' : 'maximum'
      refuse(
        `${at}.${field}`,
        `${maximum}: CPU model ${draft.cpu.model} reaches ${most} MiB with ${slots} slots`,
      )
    }
    const page = wish.hugePages === undefined ? 1 : HUGE_MIB[wish.hugePages]
    if (size % page !== 0)
      refuse(`${at}.size`, `${size}: want a multiple of ${page} MiB, a page of ${wish.hugePages}`)
    return {
      ...draft,
      memory: {
        ...{ sizeMib: size, currentMib: current, maximumMib: maximum, slots },
        ...(wish.hugePages && { hugePages: wish.hugePages }),
      },
    }
  },
})
