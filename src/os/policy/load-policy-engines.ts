import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { neverAborted } from '../../base/abort.ts'
import { messageOf } from '../../base/errors.ts'
import { SerialQueue } from '../../base/serial-queue.ts'
import { fromNodeError } from '../errors.ts'
import { type PolicyEngine, type PolicyEngines, PolicyError, type RuleOutcome } from './policy-engine.ts'

const ADDON = 'policy.node'

/** What policy.node (native/policy) has. Every promise is of work on a thread of libuv's pool. */
interface Addon {
  compile(text: string): Promise<Handle>
  setData(engine: Handle, json: string): Promise<void>
  evaluate(engine: Handle, rule: string, input: string): Promise<RuleOutcome>
  /** Frees the engine. No other call of it may run. */
  free(engine: Handle): void
}

/** An engine of the addon. */
type Handle = { readonly engine: unique symbol }

/** Loads policy.node from the agent's folder; undefined when the folder has none, as in most images. */
export function loadPolicyEngines(agentFolder: string): PolicyEngines | undefined {
  const path = join(agentFolder, ADDON)
  if (!existsSync(path)) return undefined
  const holder: { exports: unknown } = { exports: {} }
  try {
    process.dlopen(holder, path)
  } catch (error) {
    throw fromNodeError('load', path, error)
  }
  // Built from this project's own source, whose tests call each function.
  const addon = holder.exports as Addon
  return { compile: async (text) => engineOf(addon, await orPolicyError(addon.compile(text))) }
}

function engineOf(addon: Addon, handle: Handle): PolicyEngine {
  const queue = new SerialQueue()
  let closed = false
  const enqueue = <T>(task: () => Promise<T>): Promise<T> => {
    if (closed) return Promise.reject(new PolicyError('the policy engine is closed'))
    return queue.run(() => orPolicyError(task()), neverAborted)
  }
  return {
    setData: (json) => enqueue(() => addon.setData(handle, json)),
    evaluate: (rule, input) => enqueue(() => addon.evaluate(handle, rule, input)),
    close() {
      if (closed) return
      closed = true
      void queue.run(async () => addon.free(handle), neverAborted)
    },
  }
}

async function orPolicyError<T>(work: Promise<T>): Promise<T> {
  try {
    return await work
  } catch (error) {
    throw new PolicyError(messageOf(error))
  }
}
