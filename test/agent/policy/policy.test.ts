import { beforeEach, describe, expect, it } from 'vitest'
import { Policy } from '../../../src/agent/policy/policy.ts'
import { AddSwapPathRequest, CopyFileRequest, WriteStreamRequest } from '../../../src/gen/agent.ts'
import type { Taken } from '../../../src/state/request.ts'
import { StateStore } from '../../../src/state/state-store.ts'
import { FakePolicyEngines, type RuleContext } from '../../support/fakes/fake-policy-engines.ts'
import { MemoryStateFiles } from '../../support/fakes/files/memory-state-files.ts'
import { recordingLog } from '../../support/fakes/recording-log.ts'
import { callOf, numbered } from '../../support/handlers/call.ts'

const WRITE = 'grpc.AgentService/WriteStdin'
const SWAP = 'grpc.AgentService/AddSwapPath'
const COPY = 'grpc.AgentService/CopyFile'
const COUNTED = { allowed: true, ops: [{ op: 'add', path: '/pstate/n', value: 1 }] }
const LARGE = { allowed: true, ops: [{ op: 'add', path: '/pstate/n', value: 'x'.repeat(1024 * 1024) }] }

const POLICIES = {
  'input.id': {
    WriteStreamRequest: () => true,
    AddSwapPathRequest: () => COUNTED,
    CopyFileRequest: () => true,
  },
  'input.id at time.now_ns()': { WriteStreamRequest: () => true },
  'input.id of the first write': {
    WriteStreamRequest: ({ data }: RuleContext) => data.pstate.n === undefined,
    AddSwapPathRequest: () => COUNTED,
  },
  'with input.data': { WriteStreamRequest: () => true, AddSwapPathRequest: () => LARGE },
  'reads nothing': { WriteStreamRequest: () => true },
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
  let files: MemoryStateFiles
  const recorded = recordingLog()

  beforeEach(() => {
    engines = new FakePolicyEngines(POLICIES)
    files = new MemoryStateFiles()
    recorded.lines.length = 0
    const debug = (message: string, fields = {}) =>
      void recorded.lines.push({ level: 'debug', message, fields })
    policy = new Policy({
      engines: () => engines,
      log: { ...recorded.log, debug, isLogged: () => true },
      inputLog: undefined,
      state: new StateStore(files),
    })
  })

  const load = (text: keyof typeof POLICIES) => policy.load({ path: '/p', text })
  const check = (method: string, request: object) => policy.checkOf(method)(request, callOf())
  const swap = () => check(SWAP, AddSwapPathRequest.create({ path: '/swap' }))

  it('takes no time when none is set', () => {
    expect(swap()).toBeUndefined()
  })

  it('gets the bytes that are written to stdin only if it may read them', async () => {
    const request = WriteStreamRequest.create({ data: Buffer.from('ab') })
    await load('input.id')
    await check(WRITE, request)
    await load('with input.data')
    await check(WRITE, request)
    const inputs = engines.evaluations.filter(({ rule }) => rule === 'WriteStreamRequest')
    expect(inputs.map(({ input }) => JSON.parse(input).data)).toEqual([null, [97, 98]])
  })

  it('does not look at the data of a file that is copied', async () => {
    await load('input.id')
    const request = CopyFileRequest.create({ path: '/file', fileMode: 0o100_644 })
    const get = () => expect.fail('the data is read')
    Object.defineProperty(request, 'data', { get, enumerable: true })
    for (let time = 0; time < 2; time++) await check(COPY, request)
    expect(engines.evaluations.filter(({ rule }) => rule === 'CopyFileRequest')).toHaveLength(1)
  })

  it('gets no input when it reads none', async () => {
    await load('reads nothing')
    await check(WRITE, WriteStreamRequest.create({ execId: 'one' }))
    await check(WRITE, WriteStreamRequest.create({ execId: 'two' }))
    expect(engines.evaluations.slice(1)).toEqual([{ rule: 'WriteStreamRequest', input: '{}' }])
  })

  describe('that has allowed a write', () => {
    const write = (execId = 'e', size = 3) =>
      check(WRITE, WriteStreamRequest.create({ execId, data: Buffer.alloc(size) }))
    const writes = () => engines.evaluations.filter(({ rule }) => rule === 'WriteStreamRequest').length

    it('is not asked again for the same process', async () => {
      await load('input.id')
      for (let time = 0; time < 3; time++) await write('e', 100_000)
      expect(writes()).toBe(1)
      await write('f')
      expect(writes()).toBe(2)
    })

    it('is asked again after a change of its state, and by a call with such a change', async () => {
      await load('input.id of the first write')
      await write()
      const changing = swap()
      await expect(write()).rejects.toMatchObject({ code: 'PERMISSION_DENIED' })
      await changing
      await expect(write()).rejects.toMatchObject({ code: 'PERMISSION_DENIED' })
    })

    it('is asked again when it is another policy', async () => {
      await load('input.id')
      await write()
      await load('input.id of the first write')
      await write()
      expect(writes()).toBe(2)
    })

    it.each(['input.id at time.now_ns()', 'talks'] as const)(
      'is asked each time when it is %j',
      async (text) => {
        await load(text)
        const again = text === 'talks' ? swap : write
        for (let time = 0; time < 3; time++) await again()
        expect(engines.evaluations.filter(({ rule }) => rule !== 'AllowRequestsFailingPolicy')).toHaveLength(
          3,
        )
      },
    )

    it('keeps a limited number of inputs, and no long ones', async () => {
      await load('input.id')
      for (let process = 0; process < 300; process++) await write(`e${process}`)
      await write('e299')
      expect(writes()).toBe(300)
      await write('x'.repeat(2000))
      await write('x'.repeat(2000))
      expect(writes()).toBe(302)
    })
  })

  const successor = () =>
    new Policy({
      ...{ engines: () => engines, log: recorded.log, inputLog: undefined },
      state: new StateStore(files),
    })

  it('is saved with its first state before the call runs, when it comes from a file', async () => {
    await load('input.id')
    await check(WRITE, WriteStreamRequest.create({}))
    expect(files.names()).toEqual([])
    await swap()
    await swap()
    expect(files.names()).toEqual(['policy'])
  })

  it('is restored with its state, and allows the repetition of a request that has changed it', async () => {
    await load('input.id of the first write')
    const swapped = AddSwapPathRequest.create({ path: '/swap' })
    await policy.checkOf(SWAP)(swapped, numbered(7n))
    const after = successor()
    expect(await after.restore()).toBe(true)
    const write = WriteStreamRequest.create({})
    await expect(after.checkOf(WRITE)(write, callOf())).rejects.toMatchObject({
      code: 'PERMISSION_DENIED',
    })
    const asked = engines.evaluations.length
    expect(after.checkOf(SWAP)(swapped, numbered(7n))).toBeUndefined()
    expect(engines.evaluations).toHaveLength(asked)
    await after.checkOf(SWAP)(swapped, numbered(8n))
    expect(engines.evaluations).toHaveLength(asked + 1)
  })

  it.each([
    ['delivered', (taken: Taken) => taken.delivered()],
    ['dropped', (taken: Taken) => taken.dropped()],
  ] as const)(
    'does not allow again a request that has changed its state once its answer was %s',
    async (_how, tell) => {
      await load('input.id of the first write')
      const swapped = AddSwapPathRequest.create({ path: '/swap' })
      const taken: Taken[] = []
      await policy.checkOf(SWAP)(swapped, { ...numbered(7n), takes: (one) => void taken.push(one) })
      expect(policy.checkOf(SWAP)(swapped, numbered(7n))).toBeUndefined()
      taken.forEach(tell)
      expect(policy.checkOf(SWAP)(swapped, numbered(7n))).toBeDefined()
      const after = successor()
      await after.restore()
      for (const [, one] of after.taken) tell(one)
      expect(after.checkOf(SWAP)(swapped, numbered(7n))).toBeDefined()
    },
  )

  it('is restored when a call has set it', async () => {
    await policy.replace({ policy: 'reads nothing' }, numbered(3n))
    const after = successor()
    expect(await after.restore()).toBe(true)
    await after.checkOf(WRITE)(WriteStreamRequest.create({}), callOf())
    await expect(after.checkOf(SWAP)(AddSwapPathRequest.create({}), callOf())).rejects.toThrow()
    // A repeated request replaces nothing.
    const open = engines.open
    await after.replace({ policy: 'talks' }, numbered(3n))
    expect(engines.open).toBe(open)
  })

  it('prevents the start of an agent when it cannot be restored', async () => {
    files.write('policy', Buffer.from('damaged'))
    await expect(successor().restore()).rejects.toMatchObject({ code: 'FAILED_PRECONDITION' })
    files.remove('policy')
    expect(await successor().restore()).toBe(false)
  })

  it('neither changes its state nor is replaced when that cannot be saved', async () => {
    files.beforeChange = () => {
      throw new Error('ENOSPC')
    }
    await load('input.id')
    await expect(swap()).rejects.toMatchObject({ code: 'INTERNAL' })
    const replaced = new Policy({
      ...{ engines: () => engines, log: recorded.log, inputLog: undefined },
      state: new StateStore(files),
    })
    const before = engines.open
    await expect(replaced.replace({ policy: 'talks' }, callOf())).rejects.toThrow('ENOSPC')
    expect(engines.open).toBe(before)
    expect(replaced.checkOf(SWAP)(AddSwapPathRequest.create({}), callOf())).toBeUndefined()
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
