import { describe, expect, it } from 'vitest'
import { InputLog } from '../../../src/agent/policy/input-log.ts'
import { recordingLog } from '../../support/fakes/recording-log.ts'
import { turns } from '../../support/rpc/fake-methods.ts'

describe('the record of inputs', () => {
  it('has a line for each check in their order, without frequent and large ones', async () => {
    const { log, lines } = opened()
    for (const rule of ['StatsContainerRequest', 'ReadStreamRequest', 'SetPolicyRequest']) log.add(rule, '{}')
    for (let number = 0; number < 3; number++) log.add('AddSwapRequest', `{"n":${number}}`)
    await turns()
    expect(lines).toEqual([0, 1, 2].map((n) => `{"kind":"AddSwapRequest","request":{"n":${n}}}\n`))
  })

  it('ends after 16 MiB with one warning', async () => {
    const { log, lines, logged } = opened()
    const large = JSON.stringify('x'.repeat(1024 * 1024))
    for (let number = 0; number < 20; number++) log.add('AddSwapRequest', large)
    await turns()
    expect(lines).toHaveLength(15)
    expect(logged.map(({ level, fields }) => [level, fields.reason])).toEqual([['warn', 'the file is full']])
  })

  it('ends at the first failure with one warning', async () => {
    const { log, logged } = opened(() => Promise.reject(new Error('open /tmp/policy.jsonl: ELOOP')))
    for (let number = 0; number < 3; number++) log.add('AddSwapRequest', '{}')
    await turns()
    expect(logged.map(({ fields }) => fields.reason)).toEqual(['open /tmp/policy.jsonl: ELOOP'])
  })
})

function opened(open?: () => Promise<never>) {
  const lines: string[] = []
  const recorded = recordingLog()
  const file = { append: async (line: string) => void lines.push(line) }
  return { log: new InputLog(open ?? (async () => file), recorded.log), lines, logged: recorded.lines }
}
