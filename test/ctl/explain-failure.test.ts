import { describe, expect, it } from 'vitest'
import { deadlineExceeded } from '../../src/base/abort.ts'
import { AgentError } from '../../src/base/errors.ts'
import type { Session } from '../../src/client/open-session.ts'
import { explaining, whyMissing } from '../../src/ctl/explain-failure.ts'
import { SignalProcessRequest } from '../../src/gen/agent.ts'
import { Capability, ListContainersResponse } from '../../src/gen/microvm/agent/v1/introspection.ts'
import type { CallOptions } from '../../src/rpc/ttrpc/client.ts'

const unknown = new AgentError('INVALID_ARGUMENT', 'Invalid container id')

/** The explanation of a failed SignalProcess by an agent with these containers. */
async function textFor(
  containerId: string,
  has: readonly string[] | Error | 'no answer',
  error: AgentError = unknown,
) {
  const session: Session = {
    close: () => {},
    closed: new Promise(() => {}),
    call: async (_service, method, _payload, options) => {
      if (method !== 'ListContainers') throw error
      if (has === 'no answer') return await unanswered(options)
      if (has instanceof Error) throw has
      const containers = has.map((each) => ({ containerId: each, state: 'creating' }))
      return ListContainersResponse.encode(ListContainersResponse.fromPartial({ containers })).finish()
    },
  }
  const payload = SignalProcessRequest.encode(SignalProcessRequest.fromPartial({ containerId })).finish()
  const calling = explaining(session, session).call('grpc.AgentService', 'SignalProcess', payload)
  const { code, message } = await calling.then(
    () => new AgentError('OK', ''),
    (thrown) => thrown,
  )
  expect(code).toBe(error.code)
  return message
}

/** A call that ends only by its time limit. */
async function unanswered(options: CallOptions | undefined): Promise<never> {
  if (options?.timeoutMs === undefined) return await new Promise(() => {})
  throw deadlineExceeded()
}

describe('a call with a container id that is unknown', () => {
  it.each([
    ['names the nearest one', 'wbe', ['db', 'web'], ' "wbe", did you mean "web"?'],
    ['names all', 'x', ['db', 'web'], ' "x", want one of db, web'],
    ['says that there is none', 'web', [], ' "web", there is none'],
    ['tells an empty id apart', '', ['db'], ': container_id is empty, want one of db'],
    ['tells the state of one that is not ready', 'web', ['web'], ' "web", which is creating'],
  ])('%s', async (_what, id, has, text) => {
    expect(await textFor(id, has)).toBe(`Invalid container id${text}`)
  })

  it('knows each form of the text', async () => {
    const error = new AgentError('INVALID_ARGUMENT', 'invalid container id')
    expect(await textFor('wbe', ['web'], error)).toBe('invalid container id "wbe", did you mean "web"?')
  })

  it('names no more than eight', async () => {
    const ids = Array.from({ length: 9 }, (_, index) => `container-${index}`)
    expect(await textFor('x', ids)).toMatch(/want one of container-0, .*, container-7, …$/)
  })

  it('keeps the text when the agent cannot be asked, and of any other failure', async () => {
    const refused = new AgentError('PERMISSION_DENIED', 'ListContainersRequest is blocked by policy')
    expect(await textFor('x', refused)).toBe('Invalid container id')
    expect(await textFor('x', 'no answer')).toBe('Invalid container id')
    const other = new AgentError('NOT_FOUND', 'Process not found: invalid exec id')
    expect(await textFor('web', [], other)).toBe(other.message)
  })
})

describe('a part of the agent that is missing', () => {
  it('is explained with the option that enables it, and the rest of its reason', () => {
    const reason = 'agent.x is not set, want agent.x agent.y=1; no shell: none'
    expect(whyMissing(Capability.fromPartial({ reason }))).toBe(
      'agent.x is not set, want ./microvm run --append "agent.x agent.y=1"; no shell: none',
    )
    expect(whyMissing(Capability.fromPartial({ enabled: true }))).toBeUndefined()
  })
})
