import { setTimeout as sleep } from 'node:timers/promises'
import { AgentError } from '../../base/errors.ts'
import {
  connectionError,
  ImageChanged,
  type ImagePart,
  Interrupted,
  type OpenImage,
  type Resumption,
} from './image-source.ts'
import type { ImageUrl } from './image-url.ts'
import type { RootDiskLimits } from './limits.ts'

/** Where a download is. */
export interface DownloadState {
  /** Bytes of the URL that have been passed on. */
  position: number
  validator: string | undefined
  totalBytes: number | undefined
}

/** The tries of one preparation, those of images that have changed included. */
export class Tries {
  #made = 0
  readonly #limits: RootDiskLimits
  readonly #shown: string
  readonly #signal: AbortSignal

  constructor(limits: RootDiskLimits, shown: string, signal: AbortSignal) {
    this.#limits = limits
    this.#shown = shown
    this.#signal = signal
  }

  /** Waits before another try; throws UNAVAILABLE when there have been enough. */
  async next(reason: string): Promise<void> {
    const { tries, firstRetryMs, longestRetryMs } = this.#limits
    this.#made += 1
    if (this.#made >= tries) {
      throw new AgentError('UNAVAILABLE', `${this.#shown}: ${reason}, after ${tries} tries`)
    }
    const ms = Math.min(firstRetryMs * 2 ** (this.#made - 1), longestRetryMs)
    await sleep(ms, undefined, { signal: this.#signal }).catch(() => this.#signal.throwIfAborted())
  }
}

/**
 * The bytes of an image from `state.position` on. A connection that breaks is opened again, and goes on there. Throws
 * {@link ImageChanged} when the server cannot go on with the same image.
 */
export async function* download(
  { url, shown }: ImageUrl,
  openImage: OpenImage,
  state: DownloadState,
  { tries, limits, signal }: { tries: Tries; limits: RootDiskLimits; signal: AbortSignal },
): AsyncGenerator<Buffer, void, undefined> {
  for (;;) {
    try {
      const part = await openImage(resumptionOf(state), signal)
      try {
        begin(shown, state, part)
        for await (const chunk of chunksOf(part, state, limits, signal)) {
          if (state.position > (state.totalBytes ?? Number.POSITIVE_INFINITY)) {
            throw new AgentError('FAILED_PRECONDITION', `${shown}: sent more than ${state.totalBytes} bytes`)
          }
          yield chunk
        }
      } finally {
        part.body.destroy()
      }
      if (state.totalBytes === undefined || state.position === state.totalBytes) return
      throw new Interrupted(`ended after ${state.position} of ${state.totalBytes} bytes`)
    } catch (error) {
      const known = connectionError(url, error, signal)
      if (!(known instanceof Interrupted)) throw known
      if (state.position > 0 && state.validator === undefined) throw new ImageChanged(known.message)
      await tries.next(known.message)
    }
  }
}

function resumptionOf({ position, validator }: DownloadState): Resumption | undefined {
  return position === 0 || validator === undefined ? undefined : { position, validator }
}

function begin(shown: string, state: DownloadState, { totalBytes, validator }: ImagePart): void {
  const before = state.totalBytes
  if (state.position === 0) {
    state.totalBytes = totalBytes
    state.validator = validator
  } else if (before === undefined) {
    state.totalBytes = totalBytes
  } else if (totalBytes !== undefined && before !== totalBytes) {
    throw new AgentError('FAILED_PRECONDITION', `${shown}: had ${before} bytes and now has ${totalBytes}`)
  }
}

/** Breaks off a body that brings fewer than `idleBytes` in `idleMs`, unless its reader has paused. */
async function* chunksOf(
  { body }: ImagePart,
  state: DownloadState,
  { idleMs, idleBytes }: RootDiskLimits,
  signal: AbortSignal,
): AsyncGenerator<Buffer, void, undefined> {
  let [isWaiting, bytes] = [true, 0]
  const timer = setInterval(() => {
    if (isWaiting && bytes < idleBytes) body.destroy(new Interrupted(`sent ${bytes} bytes in ${idleMs} ms`))
    bytes = 0
  }, idleMs)
  try {
    for await (const chunk of body as AsyncIterable<Buffer>) {
      signal.throwIfAborted()
      bytes += chunk.length
      state.position += chunk.length
      isWaiting = false
      yield chunk
      isWaiting = true
    }
  } finally {
    clearInterval(timer)
  }
}
