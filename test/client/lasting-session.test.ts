import { describe, expect, it } from 'vitest'
import { keyUseOf } from '../../src/agent/service/rpc.ts'
import { declaredMethods } from '../../src/agent/service/services.ts'
import { neverAborted } from '../../src/base/abort.ts'
import { AgentError, ConnectionLost } from '../../src/base/errors.ts'
import { lastingSession, REPEATS } from '../../src/client/lasting-session.ts'
import type { Session } from '../../src/client/open-session.ts'
import { serviceDependencies } from '../support/agent/service-dependencies.ts'

it('a session that lasts sends no key with a call that takes none', async () => {
  const refused = declaredMethods(await serviceDependencies()).filter(
    ({ rpc }) => keyUseOf(rpc) === 'refused',
  )
  const names = refused.map(({ name }) => name.slice(name.indexOf('/') + 1))
  expect(names).toContain('ReadStdout')
  expect(names.filter((name) => REPEATS[name] === undefined)).toEqual([])
})

describe('a session whose machine moves', () => {
  const moving = new AgentError('ABORTED', 'instance web: is on its way', { reason: 'moving' })
  const aborted = new AgentError('ABORTED', 'instance web: the machine is moving to another host')
  const lost = new ConnectionLost('ttrpc: closed')
  const closed = new Promise<void>(() => {})
  const sessionOf = (call: Session['call']): Session => ({ call, close: () => {}, closed })

  /** The outcome of a call whose connection is lost, and that dials again with these failures before it succeeds. */
  async function called(failures: readonly AgentError[]): Promise<Uint8Array> {
    const left = [...failures]
    const session = lastingSession(
      sessionOf(() => Promise.reject(lost)),
      {
        dial: async () => {
          const failure = left.shift()
          if (failure !== undefined) throw failure
          return sessionOf(async () => new Uint8Array([7]))
        },
        // Less than between two tries.
        ...{ returnMs: 1, onLoss: () => {}, signal: neverAborted },
      },
    )
    return await session.call('Service', 'Method', new Uint8Array())
  }

  it('dials again for as long as the daemons say so', async () => {
    expect([...(await called([moving, moving, moving]))]).toEqual([7])
  })

  it.each([lost, aborted])('ends when they say nothing of it: %s', async (other) => {
    await expect(called([moving, other, moving])).rejects.toBe(lost)
  })
})
