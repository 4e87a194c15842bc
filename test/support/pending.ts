import { setImmediate } from 'node:timers/promises'

/** Resolves when everything that waits for no further event has run. */
export async function settle(): Promise<void> {
  for (let turn = 0; turn < 20; turn++) await setImmediate()
}

export async function isPending(promise: Promise<unknown>): Promise<boolean> {
  let pending = true
  const end = () => {
    pending = false
  }
  promise.then(end, end)
  await settle()
  return pending
}
