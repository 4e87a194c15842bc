import type { Clock } from '../../../../os/clock.ts'
import { PollLoop } from './poll-loop.ts'
import { WatchRoots } from './watch-roots.ts'

/** What all watched storages have in common. */
export interface Watch {
  readonly roots: WatchRoots
  readonly pollLoop: PollLoop
}

/** Builds it around no storage. */
export function createWatch(clock: Clock): Watch {
  return { roots: new WatchRoots(), pollLoop: new PollLoop(clock) }
}
