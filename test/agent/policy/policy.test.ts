import { beforeEach, describe, expect, it } from 'vitest'
import { Policy } from '../../../src/agent/policy/policy.ts'
import { neverAborted } from '../../../src/base/abort.ts'
import { AddSwapPathRequest, WriteStreamRequest } from '../../../src/gen/agent.ts'
import { FakePolicyEngines } from '../../support/fakes/fake-policy-engines.ts'
import { recordingLog } from '../../support/fakes/recording-log.ts'

const WRITE = 'grpc.AgentService/WriteStdin'
const SWAP = 'grpc.AgentService/AddSwapPath'
const COUNTED = { allowed: true, ops: [{ op: 'add', path: '/pstate/n', value: 1 }] }
const LARGE = { allowed: true, ops: [{ op: 'add', path: '/pstate/n', value: 'x'.repeat(1024 * 1024) }] }

const POLICIES = {
  'without the bytes': { WriteStreamRequest: () => true, AddSwapPathRequest: () => COUNTED },
  'with input.data': { WriteStreamRequest: () => true, AddSwapPathRequest: () => LARGE },
  talks: {
    AddSwapPathRequest: ({ print }: { print(text: string): void }) => {
      for (let line = 0; line < 1000; line++) print('ten bytes.')
      return true
    },
  },
}

describe('a policy', () => {
  let engines: FakePolicyEngines
  let policy: Policy
  let commands: string[]
  let endFails: boolean
  const recorded = recordingLog()

  beforeEach(() => {
    engines = new FakePolicyEngines(POLICIES)
    commands = []
    endFails = false
    recorded.lines.length = 0
    const debug = (message: string, fields = {}) =>
      void recorded.lines.push({ level: 'debug', message, fields })
    policy = new Policy({
      engines: () => engines,
      log: { ...recorded.log, debug, isLogged: () => true },
      inputLog: undefined,
      endWithAgent: async () => {
        if (endFails) throw new Error('vminit is gone')
        commands.push('end with agent')
      },
    })
  })

  const load = (text: keyof typeof POLICIES) => policy.load({ path: '/p', text })
  const check = (method: string, request: object) => policy.checkOf(method)?.(request, neverAborted)
  const swap = () => check(SWAP, AddSwapPathRequest.create({ path: '/swap' }))

  it('of none costs no wait', () => {
    expect(swap()).toBeUndefined()
  })

  it('gets the bytes that are written to stdin only if it may read them', async () => {
    const request = WriteStreamRequest.create({ data: Buffer.from('ab') })
    await load('without the bytes')
    await check(WRITE, request)
    await load('with input.data')
    await check(WRITE, request)
    const inputs = engines.evaluations.filter(({ rule }) => rule === 'WriteStreamRequest')
    expect(inputs.map(({ input }) => JSON.parse(input).data)).toEqual([null, [97, 98]])
  })

  it('of a file makes the guest end with the agent once it has state, before the call runs', async () => {
    await load('without the bytes')
    await check(WRITE, WriteStreamRequest.create({}))
    expect(commands).toEqual([])
    await swap()
    await swap()
    expect(commands).toEqual(['end with agent'])
  })

  it('neither changes its state nor is replaced when that cannot be had', async () => {
    endFails = true
    await load('without the bytes')
    await expect(swap()).rejects.toMatchObject({ code: 'INTERNAL' })
    const replaced = new Policy({
      ...{ engines: () => engines, log: recorded.log, inputLog: undefined },
      endWithAgent: async () => {
        throw new Error('vminit is gone')
      },
    })
    const before = engines.open
    await expect(replaced.replace({ policy: 'talks' }, neverAborted)).rejects.toThrow('vminit is gone')
    expect(engines.open).toBe(before)
    expect(replaced.checkOf(SWAP)?.(AddSwapPathRequest.create({}), neverAborted)).toBeUndefined()
  })

  it('keeps a state of at most 1 MiB', async () => {
    await load('with input.data')
    await expect(swap()).rejects.toMatchObject({
      code: 'INTERNAL',
      message: expect.stringMatching(/internal error: ops: \d+ characters of state, want at most 1048576$/),
    })
  })

  it('has its prints logged at level debug, and truncated', async () => {
    await load('talks')
    await swap()
    const prints = recorded.lines.filter(({ message }) => message === 'policy prints')
    expect(prints).toHaveLength(1)
    expect(prints[0]).toMatchObject({ level: 'debug', fields: { rule: 'AddSwapPathRequest' } })
    expect(String(prints[0]?.fields.text).length).toBeLessThanOrEqual(4000)
  })
})
