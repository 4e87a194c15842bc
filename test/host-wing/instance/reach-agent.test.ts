import { expect, it } from 'vitest'
import { neverAborted } from '../../../src/base/abort.ts'
import { InstanceRecord } from '../../../src/gen/microvm/instance/v1/records.ts'
import { reachAgent } from '../../../src/host/instance/moving/reach-agent.ts'
import { Timeline } from '../../../src/host/instance/record/timeline.ts'
import { Moving } from '../../../src/host/instance/streams.ts'

async function* nothing(): AsyncGenerator<Uint8Array> {}

type Found = Awaited<ReturnType<Parameters<typeof reachAgent>[0]['find']>>

/** What a caller gets of the agent of an instance with these fields. */
async function reached(fields: object): Promise<unknown> {
  const record = InstanceRecord.fromPartial({ cameFrom: ['a'] })
  const own = { record, recorded: { record, steps: [], ...fields }, machine: () => {}, ...fields }
  const find = async () =>
    ({ ...own, duringBoot: () => AbortSignal.abort(new Error('dialled')) }) as unknown as Found
  const answers = reachAgent({
    ...{ key: 'web', input: nothing(), signal: neverAborted, passed: undefined, find, dial: undefined },
  })
  return await answers.next().catch((error) => error)
}

it('a caller is told of the move until the guest that has come is ready, or is not in time', async () => {
  const steps = [{ step: 'repair', words: [] }]
  const leaving = new Timeline('move')
  expect(await reached({ timeline: leaving })).not.toBeInstanceOf(Moving)
  leaving.begin('detach')
  expect(await reached({ timeline: leaving })).toBeInstanceOf(Moving)
  expect(await reached({ steps, timeline: new Timeline('arrival') })).toBeInstanceOf(Moving)
  expect(await reached({ steps })).not.toBeInstanceOf(Moving)
  expect(await reached({})).not.toBeInstanceOf(Moving)
})
