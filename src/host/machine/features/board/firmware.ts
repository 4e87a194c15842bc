import { refuse } from '../../../spec/component-path.ts'
import { boolean, either, object, oneOf, optional } from '../../document/shape.ts'
import { catalogueName, commandLine } from '../../document/words.ts'
import { isQ35 } from '../../machine.ts'
import { type Draft, present } from '../draft.ts'
import { feature } from '../feature.ts'

const type = oneOf(['bios', 'uefi'])

/** Not a device's key: a device's backend is never named so. */
const VARIABLES = 'firmware-variables'

export const firmware = feature({
  name: 'firmware',
  summary: 'bios (default) or uefi; with a kernel of the catalogue to boot at once',
  shape: either(
    type,
    object({
      type: optional(type),
      secureBoot: optional(boolean),
      kernel: optional(catalogueName),
      initrd: optional(catalogueName),
      commandLine: optional(commandLine),
    }),
    (short) => ({ type: short }),
  ),
  expand: (draft, wish = {}, { at }) => {
    const { commandLine: words, initrd, kernel, secureBoot = false, type: kind = usualOf(draft) } = wish
    const isUefi = kind === 'uefi'
    if (isUefi && draft.board.machine === 'microvm')
      refuse(`${at}.type`, 'machine microvm has no uefi, want bios')
    if (secureBoot && !(isUefi && isQ35(draft))) refuse(`${at}.secureBoot`, 'wants uefi and machine q35')
    const orphan =
      kernel === undefined
        ? Object.entries({ initrd, commandLine: words }).find(([, value]) => value !== undefined)
        : undefined
    if (orphan !== undefined) refuse(`${at}.${orphan[0]}`, 'wants a kernel')
    const names = present({ kernel, initrd, commandLine: words, variables: isUefi ? VARIABLES : undefined })
    const backends = isUefi
      ? { ...draft.backends, [VARIABLES]: { kind: 'variables', options: {} } }
      : draft.backends
    return { ...draft, backends, firmware: { type: kind, secureBoot, ...names } }
  },
})

function usualOf({ board, defaults }: Draft): 'bios' | 'uefi' {
  return board.machine === 'microvm' ? 'bios' : defaults.firmware
}
