import { existsSync, watch } from 'node:fs'
import { dirname } from 'node:path'
import { AgentError, messageOf } from '../base/errors.ts'
import { type Child, describeExit, startChild } from './child.ts'
import { ConsoleTail } from './console-tail.ts'

const START_TIMEOUT_MS = 10_000

/**
 * Starts a program that serves a unix socket at `path`, and waits until it has made it. Rejects with UNAVAILABLE, naming
 * the program's own words, when it ends before or takes too long; it has been ended then.
 */
export async function startSocketServer(
  name: string,
  argv: readonly [string, ...string[]],
  path: string,
): Promise<Child> {
  const daemon = await startChild(name, argv)
  const words = new ConsoleTail(daemon.stderr)
  daemon.stdout.resume()
  try {
    await appearance(path, daemon)
    return daemon
  } catch (error) {
    await daemon.kill()
    const said = words.lines.length > 0 ? `: ${words.lines.join(' ')}` : ''
    throw new AgentError('UNAVAILABLE', `${name} made no socket: ${messageOf(error)}${said}`)
  }
}

/** Waits until the daemon has made its socket, or rejects when it ended or took too long. */
async function appearance(path: string, daemon: Child): Promise<void> {
  const appeared = Promise.withResolvers<void>()
  const look = () => existsSync(path) && appeared.resolve()
  const watcher = watch(dirname(path), look)
  const timer = setTimeout(() => appeared.reject(new Error('it took too long')), START_TIMEOUT_MS)
  void daemon.exited.then((exit) => appeared.reject(new Error(`it ${describeExit(exit)}`)))
  // What was there before the watch began makes no event.
  look()
  try {
    await appeared.promise
  } finally {
    clearTimeout(timer)
    watcher.close()
  }
}
