import { afterEach } from 'vitest'
import { messageOf } from '../../../src/base/errors.ts'
import { runningGuests } from './boot-guest.ts'
import { endedRuns } from './microvm-process.ts'

/** The time for an agent's answer, even in an emulated guest beside another one. */
const ANSWER_MS = 10_000

/** A failed test shows the stderr of its `./microvm run`s, and of its guests the console's last lines. */
afterEach(async ({ task }) => {
  const runs = endedRuns.splice(0)
  if (task.result?.state !== 'fail') return
  for (const { words, result } of runs) {
    process.stderr.write(
      `microvm run ${words.join(' ')}: status ${result.status}, stderr:\n${result.stderr}\n`,
    )
  }
  for (const { health, consoleText } of runningGuests) {
    const answer = await health.check({ service: '' }, { signal: AbortSignal.timeout(ANSWER_MS) }).then(
      () => 'its agent answers',
      (error: unknown) => `its agent does not answer (${messageOf(error)})`,
    )
    process.stderr.write(`the guest of "${task.name}": ${answer}; its console:\n${consoleText()}\n`)
  }
})
