import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { neverAborted } from '../../base/abort.ts'
import { messageOf } from '../../base/errors.ts'
import { SerialQueue } from '../../base/serial-queue.ts'
import { fromNodeError } from '../errors.ts'
import { type PolicyEngine, type PolicyEngines, PolicyError, type RuleOutcome } from './policy-engine.ts'

const ADDON = 'policy.node'

/** policy.node (native/policy). An engine runs one job at a time on its own thread. JSON is passed as text. */
interface Addon {
  open(): Handle
  compile(engine: Handle, text: string): Promise<void>
  setData(engine: Handle, json: string): Promise<void>
  evaluate(engine: Handle, rule: string, input: string): Promise<RuleOutcome>
  /** Makes the running job and all later ones fail for this reason. Does nothing when no job runs. */
  giveUp(engine: Handle, reason: string): void
  /** Frees the engine after the running job. */
  free(engine: Handle): void
}

interface Handle {
  readonly policyEngine: never
}

/** Time limits, because the evaluator limits neither its parser nor a built-in function that runs for long. */
const LONGEST_MS = { compile: 60_000, setData: 60_000, evaluate: 2_000 }

/** Loads policy.node from the agent's folder; undefined when the folder has none, as in most images. */
export function loadPolicyEngines(
  agentFolder: string,
  longestMs: Readonly<typeof LONGEST_MS> = LONGEST_MS,
): PolicyEngines | undefined {
  const path = join(agentFolder, ADDON)
  if (!existsSync(path)) return undefined
  const holder: { exports: unknown } = { exports: {} }
  try {
    process.dlopen(holder, path)
  } catch (error) {
    throw fromNodeError('load', path, error)
  }
  // The addon is built from this project's source, whose tests call each function.
  const addon = holder.exports as Addon
  return {
    async compile(text) {
      const engine = new AddonEngine(addon, longestMs)
      try {
        await engine.compile(text)
      } catch (error) {
        engine.close()
        throw error
      }
      return engine
    },
  }
}

class AddonEngine implements PolicyEngine {
  readonly #addon: Addon
  readonly #longestMs: Readonly<typeof LONGEST_MS>
  readonly #handle: Handle
  readonly #queue = new SerialQueue()
  #closed = false

  constructor(addon: Addon, longestMs: Readonly<typeof LONGEST_MS>) {
    this.#addon = addon
    this.#longestMs = longestMs
    this.#handle = addon.open()
  }

  compile(text: string): Promise<void> {
    return this.#do('compile', () => this.#addon.compile(this.#handle, text))
  }

  setData(json: string): Promise<void> {
    return this.#do('setData', () => this.#addon.setData(this.#handle, json))
  }

  evaluate(rule: string, input: string): Promise<RuleOutcome> {
    return this.#do('evaluate', () => this.#addon.evaluate(this.#handle, rule, input))
  }

  close(): void {
    if (this.#closed) return
    this.#closed = true
    void this.#queue.run(async () => this.#addon.free(this.#handle), neverAborted)
  }

  #do<T>(job: keyof typeof LONGEST_MS, start: () => Promise<T>): Promise<T> {
    if (this.#closed) return Promise.reject(new PolicyError('the policy engine is closed'))
    return this.#queue.run(async () => {
      const ms = this.#longestMs[job]
      const giveUp = () => this.#addon.giveUp(this.#handle, `the policy did not end within ${ms} ms`)
      // After a pause of the whole process, an answer that has arrived is taken before `setImmediate` runs.
      const timer = setTimeout(() => setImmediate(giveUp), ms)
      try {
        return await start()
      } catch (error) {
        throw new PolicyError(messageOf(error))
      } finally {
        clearTimeout(timer)
      }
    }, neverAborted)
  }
}
