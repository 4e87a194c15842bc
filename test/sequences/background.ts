export type Outcome =
  | { readonly name: 'answered'; readonly answer: unknown }
  | { readonly name: 'failed'; readonly error: unknown }

/** A call or a loop in the background of a sequence. */
export interface Background {
  /** Resolves with the end of its last call. */
  readonly ended: Promise<Outcome>
  brought(): string
  /** Resolves when the data contains `text`; rejects when the loop ends before that. */
  shown(text: string): Promise<void>
}

export function single(call: () => Promise<unknown>): Background {
  const ended = outcomeOf(call())
  const none = () => Promise.reject(new Error('a single call brings nothing'))
  return { ended, brought: () => '', shown: none }
}

/** Repeats a call after each response, until one fails or returns no data. */
export function loop(call: () => Promise<unknown>): Background {
  const chunks: Buffer[] = []
  const waiters = new Set<() => void>()
  const brought = () => Buffer.concat(chunks).toString()
  const run = async (): Promise<Outcome> => {
    for (;;) {
      const outcome = await outcomeOf(call())
      const data = outcome.name === 'answered' ? dataOf(outcome.answer) : NO_DATA
      if (data.length === 0) return outcome
      chunks.push(data)
      for (const look of waiters) look()
    }
  }
  const ended = run()
  const shown = async (text: string) => {
    const { promise, resolve, reject } = Promise.withResolvers<void>()
    const look = () => {
      if (brought().includes(text)) resolve()
    }
    waiters.add(look)
    look()
    void ended.then(() => reject(new Error(`it ended, and had brought ${JSON.stringify(brought())}`)))
    await promise.finally(() => waiters.delete(look))
  }
  return { ended, brought, shown }
}

export async function outcomeOf(call: Promise<unknown>): Promise<Outcome> {
  try {
    return { name: 'answered', answer: await call }
  } catch (error) {
    return { name: 'failed', error }
  }
}

const NO_DATA = Buffer.alloc(0)

/** The bytes of a read response; for an out-of-memory event, a line with the container's id. */
function dataOf(answer: unknown): Buffer {
  if (typeof answer !== 'object' || answer === null) return NO_DATA
  if ('data' in answer && answer.data instanceof Uint8Array) return Buffer.from(answer.data)
  if ('containerId' in answer) return Buffer.from(`${answer.containerId}\n`)
  return NO_DATA
}
