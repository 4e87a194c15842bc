/** One part of an output. */
export interface OutputPart {
  write(text: string): void
  /** Ends this part; no further writes may follow. */
  end(): void
}

/**
 * Creates `count` parts of one output that are written at the same time and appear one after the other: the first
 * part that has not ended is passed through, and the later parts are buffered until the parts before them end.
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
