import { expect } from 'vitest'
import { abortable } from '../../src/base/abort.ts'
import { AgentError, messageOf } from '../../src/base/errors.ts'
import { type Background, loop, type Outcome, outcomeOf, single } from './background.ts'
import type { Clients, Expected, RecordedCall, Sequence, Step } from './sequence.ts'

export interface Wire {
  readonly clients: Clients
  ended(): Promise<void>
  /** Calls in progress fail with UNAVAILABLE. */
  close(): void
}

export interface Place {
  dial(): Promise<Wire>
  /** Makes a root file system appear at a path of the guest, as in the host's shared folder. */
  share(path: string): Promise<void>
  /** Kills the agent. Resolves when the next agent listens. */
  killAgent(): Promise<void>
}

export interface StepReport {
  /** Counted from 1. */
  readonly number: number
  readonly what: string
}

/** Longer than any step takes under emulation; it only ends a replay that hangs. */
const STEP_LIMIT_MS = 120_000

/** Throws at the first step that does not end as recorded. */
export async function replay(sequence: Sequence, place: Place): Promise<readonly StepReport[]> {
  const wire = await place.dial()
  const player = new Player(sequence, place, wire)
  const reports: StepReport[] = []
  try {
    for (const [index, step] of sequence.steps.entries()) {
      const what = wordsOf(step)
      const failed = (error: unknown) => {
        throw new Error(`${sequence.caller}, step ${index + 1}, ${what}: ${messageOf(error)}`, {
          cause: error,
        })
      }
      const limit = AbortSignal.timeout(STEP_LIMIT_MS)
      await abortable(player.play(step), limit).catch(failed)
      reports.push({ number: index + 1, what })
    }
    player.finish()
    return reports
  } finally {
    player.close()
  }
}

class Player {
  readonly #sequence: Sequence
  readonly #place: Place
  #wire: Wire
  readonly #background = new Map<string, Background>()
  readonly #timers = new Map<string, () => Promise<void>>()

  constructor(sequence: Sequence, place: Place, wire: Wire) {
    this.#sequence = sequence
    this.#place = place
    this.#wire = wire
  }

  readonly #connection = {
    breaks: async () => {
      this.#wire.close()
      this.#wire = await this.#place.dial()
    },
    'agent dies': () => this.#place.killAgent(),
    ended: () => this.#wire.ended(),
  }

  /** Makes one call of every timer at the same time. */
  async play(step: Step): Promise<void> {
    await Promise.all([this.#playAlone(step), ...[...this.#timers.values()].map((tick) => tick())])
  }

  /** Throws when no step has checked the end of a background call or timer. */
  finish(): void {
    const left = [...this.#background.keys(), ...this.#timers.keys()]
    if (left.length > 0)
      throw new Error(`${this.#sequence.caller} ends without the end of ${left.join(', ')}`)
  }

  close(): void {
    this.#wire.close()
  }

  async #playAlone(step: Step): Promise<void> {
    if ('begin' in step)
      this.#add(
        step.begin,
        single(() => this.#make(step.call, step)),
      )
    else if ('loop' in step)
      this.#add(
        step.loop,
        loop(() => this.#make(step.call, step)),
      )
    else if ('timer' in step) {
      this.#timers.set(step.timer, async () => check(step, await outcomeOf(this.#make(step.call, step))))
    } else if ('stop' in step) {
      if (!this.#timers.delete(step.stop)) throw new Error('there is no such timer')
    } else if ('shown' in step) await this.#named(step.by).shown(step.shown)
    else if ('ended' in step) await this.#end(step)
    else if ('shares' in step) await this.#place.share(step.shares)
    else if ('connection' in step) await this.#connection[step.connection]()
    else check(step, await outcomeOf(this.#make(step.call, step)))
  }

  async #end(step: Extract<Step, { readonly ended: string }>): Promise<void> {
    const background = this.#named(step.ended)
    const outcome = await background.ended
    this.#background.delete(step.ended)
    check(step, outcome)
    const { brought } = step
    if (typeof brought === 'string') expect(background.brought()).toBe(brought)
    else if (brought !== undefined) expect(background.brought()).toMatch(brought)
  }

  #make(call: RecordedCall, limits: { readonly timeoutMs?: number | 'none' }): Promise<unknown> {
    const { metadata, timeoutMs: usual } = this.#sequence
    const { timeoutMs = usual } = limits
    return call.make(this.#wire.clients, {
      metadata,
      timeoutMs: timeoutMs === 'none' ? undefined : timeoutMs,
    })
  }

  #add(name: string, background: Background): void {
    if (this.#background.has(name)) throw new Error(`'${name}' goes on already`)
    this.#background.set(name, background)
  }

  #named(name: string): Background {
    const background = this.#background.get(name)
    if (background === undefined) throw new Error(`nothing goes on that is called '${name}'`)
    return background
  }
}

function check({ answers, fails }: Expected, outcome: Outcome): void {
  if (outcome.name === 'answered' && (answers !== undefined || fails === undefined)) {
    expect(outcome.answer).toMatchObject(answers ?? {})
    return
  }
  if (outcome.name === 'failed' && fails !== undefined) {
    const text = messageOf(outcome.error)
    const code = codeOf(outcome.error)
    if (code !== undefined && fails.codes.includes(code) && (fails.text ?? ANY).test(text)) return
  }
  const wanted = [
    ...(answers === undefined && fails !== undefined ? [] : ['success']),
    ...(fails === undefined ? [] : [`${fails.codes.join(' or ')} ${fails.text ?? ''}`.trim()]),
  ].join(', or ')
  throw new Error(`${inWords(outcome)} instead of ${wanted}`)
}

const ANY = /^/

function codeOf(error: unknown): AgentError['code'] | undefined {
  return error instanceof AgentError ? error.code : undefined
}

function inWords(outcome: Outcome): string {
  if (outcome.name === 'answered') return 'it succeeded'
  return `it failed with ${codeOf(outcome.error) ?? 'an error of ours'} '${messageOf(outcome.error)}'`
}

function wordsOf(step: Step): string {
  if ('begin' in step) return `${step.call.method} beside, '${step.begin}'`
  if ('loop' in step) return `${step.call.method} in a loop, '${step.loop}'`
  if ('timer' in step) return `${step.call.method} every ${step.everyMs / 1000} s, '${step.timer}'`
  if ('stop' in step) return `no more '${step.stop}'`
  if ('shown' in step) return `${JSON.stringify(step.shown)} from '${step.by}'`
  if ('ended' in step) return `the end of '${step.ended}'`
  if ('shares' in step) return `the host shares ${step.shares}`
  if ('connection' in step) return CONNECTION_WORDS[step.connection]
  return step.call.method
}

const CONNECTION_WORDS = {
  breaks: 'the connection breaks',
  'agent dies': 'the agent dies',
  ended: 'the agent closes the connection',
}
