import { AsyncLocalStorage } from 'node:async_hooks'

/**
 * What a call may be doing while it takes long. Logs, introspection and traces show these words, so they are few. The
 * detail that goes with one is an id, a path, a name or a verb, never an environment, an argument or data.
 */
export type StepName =
  | 'boot'
  | 'turn'
  | 'policy'
  | 'container'
  | 'processes'
  | 'ports'
  | 'device'
  | 'cdi'
  | 'storage'
  | 'mount'
  | 'runtime'
  | 'program'
  | 'hook'
  | 'terminal'
  | 'exit'
  | 'output'
  | 'input'
  | 'event'

/** Learns the steps of one call. */
export interface StepRecorder {
  /** A step begins. The function that it returns is called once, at the end, with the error of a failed step. */
  begin(name: StepName, detail: string): (error?: unknown) => void
}

const current = new AsyncLocalStorage<StepRecorder>()

/** Runs `work`; the steps in it and in all that it awaits are told to `recorder`. */
export function recordSteps<T>(recorder: StepRecorder, work: () => T): T {
  return current.run(recorder, work)
}

/** Runs `work` as a step of the call that it belongs to. Outside of a call it just runs. */
export async function inStep<T>(name: StepName, detail: string, work: () => Promise<T>): Promise<T> {
  const end = current.getStore()?.begin(name, detail)
  if (end === undefined) return work()
  try {
    const result = await work()
    end()
    return result
  } catch (error) {
    end(error)
    throw error
  }
}
