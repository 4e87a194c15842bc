import { abortable } from '../../../base/abort.ts'

/** Answers of one call, which come from work that goes on. */
export class AnswerQueue<Answer> {
  readonly #answers: Answer[] = []
  #wake = Promise.withResolvers<void>()
  #end: Promise<unknown> | undefined
  #hasEnded = false

  /** One that was not taken yet, and that this one makes needless, is left out. */
  push(answer: Answer, replaces: (before: Answer) => boolean = () => false): void {
    const before = this.#answers.at(-1)
    if (before !== undefined && replaces(before)) this.#answers.pop()
    this.#answers.push(answer)
    this.#wake.resolve()
  }

  /** The answers end, or fail, with the work. */
  endWith(work: Promise<unknown>): void {
    this.#end = work.finally(() => {
      this.#hasEnded = true
      this.#wake.resolve()
    })
    this.#end.catch(() => {})
  }

  /** The work goes on when `signal` fires. */
  async *all(signal: AbortSignal): AsyncGenerator<Answer, void> {
    for (;;) {
      for (let next = this.#answers.shift(); next !== undefined; next = this.#answers.shift()) yield next
      if (this.#hasEnded) break
      await abortable(this.#wake.promise, signal)
      this.#wake = Promise.withResolvers<void>()
    }
    await this.#end
  }
}
