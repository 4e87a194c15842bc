import { format } from 'node:util'
import { AgentError, messageOf } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import { truncate } from '../../base/truncate.ts'

/** Console methods that libraries use. Node would write their text to stdout and stderr unchanged. */
const CONSOLE_LEVELS = { log: 'info', info: 'info', debug: 'debug', warn: 'warn', error: 'error' } as const

const LONGEST_CHARACTERS = 4000

/** Logs Node's warnings, console output and the error that ends the process, but not V8's out-of-memory text. */
export function logNodeMessages(log: Logger, node: NodeJS.Process, consoleOfNode: Console): void {
  // Node's own listener writes to stderr.
  node.removeAllListeners('warning')
  node.on('warning', ({ name, message }) =>
    log.warn('warning of Node', { name, warning: truncate(message, LONGEST_CHARACTERS) }),
  )
  for (const method of ['log', 'info', 'debug', 'warn', 'error'] as const) {
    consoleOfNode[method] = (...words: readonly unknown[]) =>
      log.log(CONSOLE_LEVELS[method], 'console', { text: truncate(format(...words), LONGEST_CHARACTERS) })
  }
  node.on('uncaughtException', (error: unknown) => {
    const said = error instanceof AgentError ? error.loggedMessage : undefined
    const stack = error instanceof Error ? framesOf(error) : undefined
    log.critical('agent ended by an uncaught error', { error: said ?? messageOf(error), stack })
    node.exit(1)
  })
}

/** Drops the message at the beginning of the stack. */
function framesOf({ stack = '' }: Error): string {
  const frames = stack.split('\n').filter((line) => /^\s+at /.test(line))
  return truncate(frames.map((line) => line.trim()).join(', '), LONGEST_CHARACTERS)
}
