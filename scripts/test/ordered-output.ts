export interface OutputPart {
  write(text: string): void
  end(): void
}

/**
 * Creates `count` parts that are written at the same time and appear in order: the first part that has not ended passes
 * through, later parts are buffered.
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
