import { checkErrno, kernelError } from '../errors.ts'
import type { Native } from '../native.ts'
import type { Fd } from './streams.ts'

/** Promises over the addon's one-shot watches. */
export class Readiness {
  readonly #native: Native
  readonly #abandon = new Map<Fd, Set<() => void>>()

  constructor(native: Native) {
    this.#native = native
  }

  /** Resolves when `fd` is ready. Rejects with the reason of `signal`, or with EBADF after {@link abandon}. */
  async wait(fd: Fd, direction: 'read' | 'write', signal: AbortSignal | undefined): Promise<void> {
    signal?.throwIfAborted()
    const ready = Promise.withResolvers<void>()
    let isOver = false
    const watch = checkErrno(
      'poll',
      `fd ${fd}`,
      this.#native.watchFd(fd, direction, () => {
        isOver = true
        ready.resolve()
      }),
    )
    const onAbort = () => ready.reject(signal?.reason)
    const abandon = () => {
      this.#native.cancelWatch(fd, watch)
      ready.reject(kernelError('poll', `fd ${fd}`, 'EBADF'))
    }
    signal?.addEventListener('abort', onAbort, { once: true })
    this.#add(fd, abandon)
    try {
      await ready.promise
    } finally {
      this.#remove(fd, abandon)
      signal?.removeEventListener('abort', onAbort)
      // Watch numbers are used only once, so this cannot end a later watch.
      if (!isOver) this.#native.cancelWatch(fd, watch)
    }
  }

  /** Ends every wait on `fd`, so that it can be closed. */
  abandon(fd: Fd): void {
    for (const abandon of this.#abandon.get(fd) ?? []) abandon()
  }

  #add(fd: Fd, abandon: () => void): void {
    const waits = this.#abandon.get(fd) ?? new Set()
    waits.add(abandon)
    this.#abandon.set(fd, waits)
  }

  #remove(fd: Fd, abandon: () => void): void {
    const waits = this.#abandon.get(fd)
    waits?.delete(abandon)
    if (waits?.size === 0) this.#abandon.delete(fd)
  }
}
