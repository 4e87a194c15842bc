import { expect, it } from 'vitest'
import { silentLogger } from '../../../../src/base/log.ts'
import { MoveEnd } from '../../../../src/gen/microvm/instance/v1/handover.ts'
import { InstanceRecord } from '../../../../src/gen/microvm/instance/v1/records.ts'
import { letRunAgain } from '../../../../src/host/migration/move/let-run.ts'

it('announces a guest that an earlier daemon has let run', async () => {
  const said: string[] = []
  const execute = async (command: string) => {
    said.push(command)
    return { running: true, status: 'running' }
  }
  const connect = async (name: string) => void said.push(`${name} up`)
  const instance = {
    ...{ key: 'web', record: InstanceRecord.create(), ending: new AbortController().signal },
    machine: () => ({ qmp: { execute } }),
    planned: async () => [{ step: 'tap', words: ['net', 'tap0', ''] }],
    recorded: { steps: [], step: (step: string) => ({ step, words: [] }), note: async () => {} },
    context: { log: silentLogger(), links: { connect } },
  }
  await letRunAgain(
    instance as unknown as Parameters<typeof letRunAgain>[0],
    MoveEnd.create({ running: true }),
  )
  expect(said.filter((each) => each !== 'query-status')).toEqual(['tap0 up', 'cont', 'announce-self'])
})
