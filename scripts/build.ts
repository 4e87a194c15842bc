import { messageOf } from '../src/base/errors.ts'
import { buildAgent } from '../src/build/agent.ts'

try {
  console.log(await buildAgent())
} catch (error) {
  console.error(`build: ${messageOf(error)}`)
  process.exitCode = 1
}
