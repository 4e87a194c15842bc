import { format } from 'node:util'
import { AgentError, messageOf } from '../base/errors.ts'
import type { Logger } from '../base/log.ts'
import { truncate } from '../base/truncate.ts'

/** The methods of the console that libraries use. Node would write their text to stdout and stderr as it is. */
const CONSOLE_LEVELS = { log: 'info', info: 'info', debug: 'debug', warn: 'warn', error: 'error' } as const

const LONGEST_CHARACTERS = 4000

/**
 * Makes log lines of what Node and libraries would write themselves: warnings, the console, and the error that ends the
 * process, with status 1. What V8 writes when it has no memory left, and the kernel's words, stay as they are.
 */
export function logNodeMessages(log: Logger, node: NodeJS.Process, consoleOfNode: Console): void {
  // Node's own listener writes the warning to stderr.
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
    log.critical('the agent ends by an error of its own', { error: said ?? messageOf(error), stack })
    node.exit(1)
  })
}

/** The stack without the message, which it begins with. */
function framesOf({ stack = '' }: Error): string {
  const frames = stack.split('\n').filter((line) => /^\s+at /.test(line))
  return truncate(frames.map((line) => line.trim()).join(', '), LONGEST_CHARACTERS)
}
