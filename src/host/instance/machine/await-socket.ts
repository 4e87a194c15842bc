import { existsSync, watch } from 'node:fs'
import { dirname } from 'node:path'
import { AgentError } from '../../../base/errors.ts'
import type { Holder } from '../holder/holder.ts'
import { lastLine } from './machine.ts'

/**
 * Calls `start`, which starts the process `name`, and waits until that has made its socket at `path`. Rejects with
 * UNAVAILABLE when it ends first, with the last line of its log, or takes more than `ms`.
 */
export async function awaitSocket(
  path: string,
  process: { readonly holder: Holder; readonly name: string; readonly log: string; readonly ms: number },
  start: () => Promise<unknown>,
): Promise<void> {
  const { holder, name, log, ms } = process
  const appeared = Promise.withResolvers<void>()
  const refuse = (reason: string) => appeared.reject(new AgentError('UNAVAILABLE', `${name}: ${reason}`))
  const look = () => existsSync(path) && appeared.resolve()
  const watcher = watch(dirname(path), look)
  const timer = setTimeout(() => refuse(`made no socket within ${ms} ms`), ms)
  const stopListening = holder.onExit((child) => {
    if (child.name !== name) return
    const how = `ended with status ${child.exit?.code ?? '-'} before it made its socket`
    void lastLine(log).then((words) => refuse(words === '' ? how : `${how}: ${words}`))
  })
  void holder.ended.then(() => refuse('its holder has ended'))
  // Handled here for the case that `start` rejects first.
  appeared.promise.catch(() => {})
  try {
    await start()
    look()
    await appeared.promise
  } finally {
    clearTimeout(timer)
    watcher.close()
    stopListening()
  }
}
