import { messageOf } from '../src/base/errors.ts'
import { buildAgent } from '../src/build/agent.ts'

/** `npm run build`: the agent directory, for this machine and for guests. Prints its path. */
try {
  console.log(await buildAgent())
} catch (error) {
  console.error(`build: ${messageOf(error)}`)
  process.exitCode = 1
}
