import { existsSync, watch } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { dirname } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { abortable } from '../../../base/abort.ts'
import { AgentError, messageOf } from '../../../base/errors.ts'
import type { HeldChild, Holder } from '../holder/holder.ts'
import { lastLine } from './machine.ts'

/** Between two looks whether a socket that is there listens, which no event tells. */
const LOOK_MS = 20

/**
 * Calls `start`, which starts the process `name`, and waits until that listens on its socket at `path`. Rejects with
 * UNAVAILABLE when it ends first, with the last line of its log, or takes more than `ms`.
 */
export async function awaitSocket(
  path: string,
  process: { readonly holder: Holder; readonly name: string; readonly log: string; readonly ms: number },
  start: () => Promise<Pick<HeldChild, 'pid'>>,
): Promise<void> {
  const { holder, name, log, ms } = process
  const appeared = Promise.withResolvers<void>()
  const over = new AbortController()
  const refuse = (reason: string) => over.abort(new AgentError('UNAVAILABLE', `${name}: ${reason}`))
  const look = () => existsSync(path) && appeared.resolve()
  const watcher = watch(dirname(path), look)
  const timer = setTimeout(() => refuse(`made no socket within ${ms} ms`), ms)
  const stopListening = holder.onExit((child) => {
    if (child.name !== name) return
    const how = `ended with status ${child.exit?.code ?? '-'} before it made its socket`
    void lastLine(log).then((words) => refuse(words === '' ? how : `${how}: ${words}`))
  })
  void holder.ended.then(() => refuse('its holder has ended'))
  try {
    const { pid } = await start()
    look()
    await abortable(appeared.promise, over.signal)
    while (!(await isListening(pid, path))) await sleep(LOOK_MS, undefined, { signal: over.signal })
  } catch (error) {
    over.signal.throwIfAborted()
    throw error
  } finally {
    clearTimeout(timer)
    watcher.close()
    stopListening()
  }
}

/** The error of a daemon of the backend `key` that could not begin, with what this host lacks where that is known. */
export function explainDaemon(
  error: unknown,
  { key, name, isRoutable }: { readonly key: string; readonly name: string; readonly isRoutable: boolean },
): unknown {
  const refused = (text: string) =>
    new AgentError('FAILED_PRECONDITION', `backends.${key}: ${text}`, { cause: error })
  const text = messageOf(error)
  // passt of Debian 12 copies its addresses from an interface with a default route; later ones can do without.
  if (name.startsWith('passt-') && !isRoutable)
    return refused(
      `this host has no interface with a default route, from which passt takes its addresses (${text})`,
    )
  if (!name.startsWith('nbd-')) return error
  const [, reason] = STORAGE.exec(text) ?? []
  // Such as a server that does not answer.
  if (reason === undefined) return new AgentError('UNAVAILABLE', `backends.${key}: ${text}`, { cause: error })
  const [, driver] = /^Unknown driver '(\w+)'/.exec(reason) ?? []
  if (driver === undefined) return refused(reason === UNTRUSTED ? `${reason}: it may have expired` : reason)
  return refused(`this host has no disks by ${driver}; ./microvm doctor names the package`)
}

/** The words of qemu-storage-daemon: what was asked, and why not. */
const STORAGE = /--(?:blockdev \{.*\}|object [^:]*): (.*)$/

/** QEMU's words (crypto/tlssession.c) for a certificate whose issuer it knows. */
const UNTRUSTED = 'The certificate is not trusted'

/**
 * Whether the process listens on the socket; also when that cannot be seen. A connection would tell, too, but virtiofsd takes
 * one only.
 */
export async function isListening(pid: number, path: string): Promise<boolean> {
  // A list for each network namespace. The path is as the process has bound it.
  const list = await readFile(`/proc/${pid}/net/unix`, 'utf8').catch(() => undefined)
  if (list === undefined) return true
  return list.split('\n').some((line) => {
    const [, flags, bound = ''] = SOCKET_LINE.exec(line) ?? []
    return flags === LISTENS && path.endsWith(bound)
  })
}

/** Seven fields, the fourth of them the flags, and the path, which may have spaces (net/unix/af_unix.c). */
const SOCKET_LINE = /^(?:\S+ +){3}(\S+) +(?:\S+ +){2}\S+ (.+)$/

/** __SO_ACCEPTCON of Linux. */
const LISTENS = '00010000'
