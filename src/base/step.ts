import { AsyncLocalStorage } from 'node:async_hooks'

/** Shown in logs, introspection and traces. A step's detail is an id, path, name or verb, never an argument or data. */
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
  | 'freeze'

export interface StepRecorder {
  /** The caller calls the returned function once, at the end of the step, with the error if the step failed. */
  begin(name: StepName, detail: string): (error?: unknown) => void
}

const current = new AsyncLocalStorage<StepRecorder>()

/** Runs `work` and reports its steps to `recorder`, also those after an await. */
export function recordSteps<T>(recorder: StepRecorder, work: () => T): T {
  return current.run(recorder, work)
}

/** Runs `work` as a step of the current call. Outside of a call it just runs. */
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
