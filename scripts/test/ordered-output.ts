/** One part of an output. */
export interface OutputPart {
  write(text: string): void
  /** Nothing more follows in this part. */
  end(): void
}

/**
 * Makes `count` parts of one output that are written to at the same time and appear one after the other: the first
 * part that has not ended is written through, what the parts behind it write is held back until their turn.
 */
export function orderedOutput(count: number, write: (text: string) => void): readonly OutputPart[] {
  const states = Array.from({ length: count }, () => ({ held: '', ended: false }))
  let turn = 0
  const flush = () => {
    for (let state = states[turn]; state !== undefined; state = states[turn]) {
      if (state.held !== '') write(state.held)
      state.held = ''
      if (!state.ended) return
      turn += 1
    }
  }
  return states.map((state) => ({
    write(text) {
      state.held += text
      flush()
    },
    end() {
      state.ended = true
      flush()
    },
  }))
}
