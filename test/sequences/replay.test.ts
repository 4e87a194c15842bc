import { describe, expect, it } from 'vitest'
import { AgentError } from '../../src/base/errors.ts'
import { AgentServiceDefinition } from '../../src/gen/agent.ts'
import { HealthDefinition } from '../../src/gen/health.ts'
import { clientFor } from '../../src/rpc/client.ts'
import { type Place, replay } from './replay.ts'
import { agent, health, type Sequence, type Step } from './sequence.ts'

type Answer = (request: Buffer) => Promise<object>

const UNIMPLEMENTED: Answer = async () => {
  throw new AgentError('UNIMPLEMENTED', 'not yet')
}
const EMPTY: Answer = async () => ({})

function placeWith(answers: Readonly<Record<string, Answer>>) {
  const asked: string[] = []
  const call = async (_service: string, method: string, payload: Uint8Array) => {
    asked.push(method)
    const answer = await (answers[method] ?? UNIMPLEMENTED)(Buffer.from(payload))
    return encoderOf(method).encode(answer).finish()
  }
  const clients = {
    agent: clientFor(AgentServiceDefinition, { call }),
    health: clientFor(HealthDefinition, { call }),
  }
  const place: Place = {
    dial: async () => {
      asked.push('dial')
      return { clients, ended: async () => {}, close: () => void asked.push('close') }
    },
    share: async (path) => void asked.push(`share ${path}`),
    killAgent: async () => void asked.push('kill'),
  }
  return { place, asked }
}

/** The union of all message types does not express that each type encodes its own responses. */
function encoderOf(method: string): { encode(message: object): { finish(): Uint8Array } } {
  const methods = [AgentServiceDefinition, HealthDefinition].flatMap(({ methods }) => Object.values(methods))
  const found = methods.find(({ name }) => name === method)
  if (found === undefined) throw new Error(`there is no ${method}`)
  return found.responseType as ReturnType<typeof encoderOf>
}

function sequenceOf(...steps: readonly Step[]): Sequence {
  return {
    caller: 'a caller',
    metadata: {},
    timeoutMs: 1000,
    hasHealthConnection: false,
    containers: [],
    sharedCgroups: [],
    steps,
  }
}
const read = agent('readStdout', { containerId: 'c', len: 1 })

describe('replay', () => {
  it('makes the calls in their order and reports each step', async () => {
    const { place, asked } = placeWith({ Check: async () => ({ status: 1 }), CreateSandbox: EMPTY })
    const reports = await replay(
      sequenceOf(
        { call: health('check', {}), answers: { status: 1 } },
        { shares: '/root' },
        { call: agent('createSandbox', {}) },
      ),
      place,
    )
    expect(asked).toEqual(['dial', 'Check', 'share /root', 'CreateSandbox', 'close'])
    expect(reports).toEqual([
      { number: 1, what: 'Check' },
      { number: 2, what: 'the host shares /root' },
      { number: 3, what: 'CreateSandbox' },
    ])
  })

  it('fails at an answer that differs from the recorded one, and names the step', async () => {
    const { place, asked } = placeWith({ Check: async () => ({ status: 2 }) })
    const steps: Step[] = [{ call: health('check', {}), answers: { status: 1 } }]
    await expect(replay(sequenceOf(...steps), place)).rejects.toThrow(/^a caller, step 1, Check: /)
    expect(asked.at(-1)).toBe('close')
  })

  it.each<[string, Answer, Partial<Step>]>([
    ['a failure instead of success', UNIMPLEMENTED, {}],
    ['success instead of a failure', EMPTY, { fails: { codes: ['INTERNAL'] } }],
    ['another code', UNIMPLEMENTED, { fails: { codes: ['INTERNAL'] } }],
    ['another text', UNIMPLEMENTED, { fails: { codes: ['UNIMPLEMENTED'], text: /never/ } }],
  ])('fails at %s', async (_name, answer, expected) => {
    const { place } = placeWith({ StartContainer: answer })
    const step: Step = { call: agent('startContainer', {}), ...expected }
    await expect(replay(sequenceOf(step), place)).rejects.toThrow(/instead of/)
  })

  it('accepts an answer or a failure where either is right', async () => {
    const step: Step = {
      call: agent('signalProcess', {}),
      answers: {},
      fails: { codes: ['UNIMPLEMENTED'], text: /not yet/ },
    }
    for (const SignalProcess of [EMPTY, UNIMPLEMENTED]) {
      await expect(replay(sequenceOf(step), placeWith({ SignalProcess }).place)).resolves.toHaveLength(1)
    }
  })

  describe('of a loop', () => {
    const texts =
      (...list: string[]): Answer =>
      async () => ({ data: Buffer.from(list.shift() ?? '') })
    const reading: Step = { loop: 'output', call: read }

    it('reads to the end and compares all that came', async () => {
      const { place, asked } = placeWith({ ReadStdout: texts('a', 'b') })
      await replay(
        sequenceOf(reading, { shown: 'ab', by: 'output' }, { ended: 'output', brought: 'ab' }),
        place,
      )
      expect(asked.filter((name) => name === 'ReadStdout')).toHaveLength(3)
    })

    it.each<[string, Step]>([
      ['ends without the text', { shown: 'c', by: 'output' }],
      ['brings another text', { ended: 'output', brought: /^a$/ }],
    ])('fails when it %s', async (_name, step) => {
      const { place } = placeWith({ ReadStdout: texts('a', 'b') })
      await expect(replay(sequenceOf(reading, step), place)).rejects.toThrow(/a caller, step 2, /)
    })

    it('fails when no step has checked its end', async () => {
      const { place } = placeWith({ ReadStdout: texts() })
      await expect(replay(sequenceOf(reading), place)).rejects.toThrow('without the end of output')
    })
  })

  it('continues beside a call that was begun, on a connection that is dialled anew', async () => {
    const held = Promise.withResolvers<object>()
    const { place, asked } = placeWith({
      WaitProcess: () => held.promise,
      CreateSandbox: async () => {
        held.reject(new AgentError('UNAVAILABLE', 'ttrpc: closed'))
        return {}
      },
    })
    await replay(
      sequenceOf(
        { begin: 'exit', call: agent('waitProcess', {}) },
        { call: agent('createSandbox', {}) },
        { connection: 'breaks' },
        { ended: 'exit', fails: { codes: ['UNAVAILABLE'] } },
      ),
      place,
    )
    expect(asked).toEqual(['dial', 'WaitProcess', 'CreateSandbox', 'close', 'dial', 'close'])
  })

  it('makes a timer’s call beside each step until it is stopped, and fails with it', async () => {
    const timer: Step = {
      timer: 'health',
      everyMs: 1000,
      call: health('check', {}),
      answers: { status: 1 },
    }
    const steps: Step[] = [timer, { shares: '1' }, { shares: '2' }, { stop: 'health' }]
    const { place, asked } = placeWith({ Check: async () => ({ status: 1 }) })
    await replay(sequenceOf(...steps, { shares: '3' }), place)
    expect(asked.filter((name) => name === 'Check')).toHaveLength(3)
    const failing = placeWith({ Check: async () => ({ status: 2 }) })
    await expect(replay(sequenceOf(...steps), failing.place)).rejects.toThrow(/^a caller, step 1, /)
  })
})
