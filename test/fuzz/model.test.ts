import { describe } from 'vitest'
import { MODEL_SHARE } from '../../scripts/test/model-run.ts'
import { fuzz } from '../support/fuzz/fuzz.ts'
import { type Command, commands, ModelRun, showRun } from '../support/fuzz/model.ts'

describe('an agent whose calls of the kernel fail, are late or are never answered', () => {
  fuzz('model/lives', { share: MODEL_SHARE, seed: 1, batch: 100, input: commands(), show: showRun, run })
})

/** Every call ends, and everything can be used and removed once nothing fails any more. */
async function run(list: readonly Command[]): Promise<void> {
  const model = new ModelRun()
  await model.begin()
  for (const command of list) await model.do(command)
  await model.end()
}
