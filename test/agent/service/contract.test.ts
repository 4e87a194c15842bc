import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import type { StatusCodeName } from '../../../src/base/errors.ts'
import contract from '../../fixtures/agent-api.json' with { type: 'json' }
import { type RunningServices, runServices } from '../../support/agent/run-services.ts'

/** Long enough for each answer; the deadline ends the polls, which wait for an event. */
const DEADLINE_MS = 2000

describe.each(['ttrpc', 'grpc'] as const)('the contract over %s', (framing) => {
  let services: RunningServices

  beforeEach(async () => {
    services = await runServices()
  })

  afterEach(() => services.close())

  it('has no method that is UNIMPLEMENTED', async () => {
    const methods = Object.entries(contract.services).flatMap(([service, methods]) =>
      Object.keys(methods).map((method) => ({ service, method })),
    )
    const codes = await Promise.all(methods.map(({ service, method }) => codeOf(service, method)))
    const unimplemented = methods.filter((_, index) => codes[index] === 'UNIMPLEMENTED')
    expect(unimplemented).toEqual([])
    expect(methods).toHaveLength(44)
  })

  async function codeOf(service: string, method: string): Promise<StatusCodeName> {
    const options = { timeoutMs: DEADLINE_MS }
    const calling = services.connections[framing].call(service, method, new Uint8Array(), options)
    return calling.then(
      () => 'OK',
      (error) => error.code,
    )
  }
})
