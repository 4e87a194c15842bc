import { AgentError, messageOf } from '../base/errors.ts'
import { runAgent } from './app.ts'
import { USAGE } from './config/arguments.ts'

runAgent({ arguments: process.argv.slice(2), environment: process.env, file: import.meta.filename }).then(
  (status) => process.exit(status),
  (error: unknown) => {
    const misused = error instanceof AgentError && error.code === 'INVALID_ARGUMENT'
    process.stderr.write(`agent: ${messageOf(error)}\n${misused ? `${USAGE}\n` : ''}`)
    // Status 2 tells vminit not to start the agent again.
    process.exit(misused ? 2 : 1)
  },
)
