import { refuse } from '../../../spec/component-path.ts'
import { boolean, either, integer, object, oneOf, optional, type Shape, text } from '../../document/shape.ts'
import { withAgentChannel } from '../agent-channel.ts'
import { type Draft, withNote } from '../draft.ts'
import { feature, type HostFacts } from '../feature.ts'

const type = oneOf(['linux', 'windows', 'other'])

/** The versions of Windows that know Hyper-V's interfaces. */
const WINDOWS = ['7', '8', '8.1', '10', '2008', '2012', '2016', '2019', '2022', '2025']

const versionText = text(/^[\w.]{1,16}$/, 'a version such as 10')
/** YAML takes it for a number. */
const version: Shape<string> = {
  read: (value, at) => versionText.read(typeof value === 'number' ? String(value) : value, at),
  schema: { anyOf: [{ type: 'number' }, versionText.schema] },
}

export const system = feature({
  name: 'system',
  summary:
    'the guest: its type and version decide clock, timers, Hyper-V interfaces and the channel of its agent',
  shape: either(
    type,
    object({
      type: optional(type),
      version: optional(version),
      arch: optional(oneOf(['x86_64'])),
      acpi: optional(boolean),
      guestAgent: optional(boolean),
      clock: optional(
        object({
          adjustment: optional(integer(-86_400, 86_400, 'seconds from UTC')),
          timers: optional(
            object({
              rtc: optional(oneOf(['catchup', 'delay'])),
              pit: optional(oneOf(['catchup', 'delay', 'discard'])),
              hpet: optional(boolean),
              hypervclock: optional(boolean),
              /** Whether a host that does not give them is refused. */
              require: optional(boolean),
            }),
          ),
        }),
      ),
      hyperv: optional(
        object({
          relaxed: optional(boolean),
          vapic: optional(boolean),
          spinlockRetries: optional(integer(4095, 0xffff_ffff)),
          require: optional(boolean),
        }),
      ),
    }),
    (short) => ({ type: short }),
  ),
  expand: (draft, wish = {}, { at, facts }) => {
    const isWindows = wish.type === 'windows'
    if (isWindows) checkWindows(wish.version, `${at}.version`)
    const { timers } = wish.clock ?? {}
    const usual = draft.defaults.timers
    const clock = {
      // Windows takes the clock of its machine for local time.
      basis: isWindows ? 'localtime' : 'utc',
      adjustmentSeconds: wish.clock?.adjustment ?? 0,
      timers: {
        ...{ rtc: timers?.rtc ?? usual.rtc, pit: timers?.pit ?? usual.pit },
        ...{ hpet: timers?.hpet ?? usual.hpet, hypervclock: timers?.hypervclock ?? isWindows },
      },
    } as const
    const own = { ...draft, clock, board: { ...draft.board, acpi: wish.acpi ?? true } }
    const { require, ...asked } = wish.hyperv ?? {}
    const hyperv =
      isWindows || wish.hyperv !== undefined
        ? hypervOf(asked, isWindows ? draft.defaults : undefined)
        : undefined
    const timed = withClockNotes(hyperv === undefined ? own : { ...own, hyperv }, facts)
    const isEmulated = facts.acceleration === 'tcg'
    if (require === true && isEmulated) refuse(`${at}.hyperv`, 'not given here: no KVM')
    if (timers?.require === true && isEmulated)
      refuse(`${at}.clock.timers`, 'not given here: PIT tick policy (no KVM)')
    return (wish.guestAgent ?? isWindows) ? withAgentChannel(timed, at) : timed
  },
})

function checkWindows(version: string | undefined, at: string): void {
  if (version === '11') refuse(at, '11: wants a TPM, which is not built yet')
  if (version !== undefined && !WINDOWS.includes(version))
    refuse(at, `${version}: want ${WINDOWS.join(', ')}`)
}

interface HypervWish {
  readonly relaxed?: boolean | undefined
  readonly vapic?: boolean | undefined
  readonly spinlockRetries?: number | undefined
}

/** Windows gets all of them unless the wish says otherwise; another guest gets what it asks for. */
function hypervOf(
  { relaxed, vapic, spinlockRetries }: HypervWish,
  windows: Draft['defaults'] | undefined,
): Draft['hyperv'] {
  const retries = spinlockRetries ?? windows?.spinlockRetries
  const isWindows = windows !== undefined
  return {
    ...{ relaxed: relaxed ?? isWindows, vapic: vapic ?? isWindows },
    ...(retries !== undefined && { spinlockRetries: retries }),
  }
}

/** QEMU's emulation takes these words and does nothing, so the machine says so. */
function withClockNotes(draft: Draft, { acceleration }: HostFacts): Draft {
  if (acceleration !== 'tcg') return draft
  const pit =
    draft.clock.timers.pit === undefined ? draft : withNote(draft, 'not given here: PIT tick policy (no KVM)')
  const isAsked = draft.hyperv !== undefined || draft.clock.timers.hypervclock
  return isAsked ? withNote(pit, 'not given here: hyperv (no KVM)') : pit
}
