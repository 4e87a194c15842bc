import { type Place, play } from '../../src/ctl/recording/player.ts'
import type { Recording } from '../../src/ctl/recording/recording.ts'
import { notesOf } from './notes.ts'

/** See {@link play}. */
export function replay(recording: Recording, place: Place, until?: string): Promise<number> {
  return play(recording, notesOf(recording), place, until)
}
