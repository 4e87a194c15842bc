import type { Clock } from '../../../../os/os.ts'
import { Rounds } from './poll-loop.ts'
import { WatchRoots } from './watch-roots.ts'

/** What all watched storages have in common. */
export interface Watch {
  readonly roots: WatchRoots
  readonly rounds: Rounds
}

/** Builds it around no storage. */
export function createWatch(clock: Clock): Watch {
  return { roots: new WatchRoots(), rounds: new Rounds(clock) }
}
