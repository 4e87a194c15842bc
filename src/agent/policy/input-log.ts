import { messageOf } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import type { LineFile } from '../../os/files/line-file.ts'

/** Kata's agent writes the inputs to the same file. */
export const INPUT_LOG = '/tmp/policy.jsonl'

const MAX_CHARACTERS = 16 * 1024 * 1024

/** Rules with too many or too large inputs. Kata's agent leaves out the same. */
const LEFT_OUT = ['StatsContainerRequest', 'ReadStreamRequest', 'SetPolicyRequest']

/** Records inputs as lines of JSON for authors of policies, at log level debug only, because inputs hold environments. */
export class InputLog {
  readonly #open: () => Promise<Pick<LineFile, 'append'>>
  readonly #log: Logger
  #file: Promise<Pick<LineFile, 'append'>> | undefined
  #written: Promise<void> = Promise.resolve()
  #charactersLeft = MAX_CHARACTERS

  /** `open` is called at the first line. It may wait for the file system. */
  constructor(open: () => Promise<Pick<LineFile, 'append'>>, log: Logger) {
    this.#open = open
    this.#log = log
  }

  /** `input` is JSON. */
  add(rule: string, input: string): void {
    if (LEFT_OUT.includes(rule) || this.#charactersLeft === 0) return
    const line = `{"kind":"${rule}","request":${input}}\n`
    if (line.length > this.#charactersLeft) this.#end('the file is full')
    else {
      this.#charactersLeft -= line.length
      this.#written = this.#written
        .then(() => this.#append(line))
        .catch((error) => this.#end(messageOf(error)))
    }
  }

  async #append(line: string): Promise<void> {
    this.#file ??= this.#open()
    await (await this.#file).append(line)
  }

  #end(reason: string): void {
    if (this.#charactersLeft > 0) this.#log.warn('inputs of checks no longer recorded', { reason })
    this.#charactersLeft = 0
  }
}
