import { describe } from 'vitest'
import { COMMANDS_A_CASE, MODEL_SHARE } from '../../scripts/test/model-run.ts'
import { fuzz } from '../support/fuzz/fuzz.ts'
import { type Life, lives, ModelRun, showLife } from './model.ts'

describe('an agent whose calls of the kernel fail, are late or are never answered', () => {
  fuzz('model/lives', {
    ...{ share: MODEL_SHARE, input: lives(), show: showLife, run },
    bySeed: (seed) => `npm run model -- --commands ${COMMANDS_A_CASE} --seed ${seed}`,
  })
})

async function run({ commands, ...begin }: Life): Promise<void> {
  const model = new ModelRun()
  await model.begin(begin)
  for (const command of commands) await model.do(command)
  await model.end()
}
