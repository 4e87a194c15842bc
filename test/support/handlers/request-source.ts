import type { RequestState } from '../../../src/os/supervisor/broker-messages.ts'
import type { RequestSource } from '../../../src/state/request-journal.ts'

/** What the broker tells of the requests of the time before: `answered` is the end of those that are not settled. */
export function requestSource(
  states: ReadonlyMap<bigint, RequestState>,
  answered: Promise<'written' | 'dropped'> = new Promise(() => {}),
): RequestSource & { readonly left: bigint[]; readonly confirmed: bigint[] } {
  const [left, confirmed]: [bigint[], bigint[]] = [[], []]
  return {
    earlierRequests: {
      states,
      settled: async (number) => {
        const state = states.get(number)
        return state === 'written' || state === 'dropped' ? state : answered
      },
    },
    confirm: (number) => void confirmed.push(number),
    leave: (number) => void left.push(number),
    ...{ left, confirmed },
  }
}
