import { AgentError, messageOf } from '../base/errors.ts'
import { runAgent } from './app.ts'
import { USAGE, WrongArgument } from './config/arguments.ts'

const FINAL: ReadonlySet<string> = new Set(['INVALID_ARGUMENT', 'FAILED_PRECONDITION'])

runAgent({ arguments: process.argv.slice(2), environment: process.env, file: import.meta.filename }).then(
  (status) => process.exit(status),
  (error: unknown) => {
    const usage = error instanceof WrongArgument ? `${USAGE}\n` : ''
    process.stderr.write(`${usage}agent: ${messageOf(error)}\n`)
    // Status 2 tells vminit not to start the agent again: arguments, settings or the policy's file are wrong.
    const isFinal = error instanceof AgentError && FINAL.has(error.code)
    process.exit(isFinal ? 2 : 1)
  },
)
