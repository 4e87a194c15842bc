import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { IntrospectionDefinition } from '../../../src/gen/microvm/agent/v1/introspection.ts'
import { clientFor } from '../../../src/rpc/client.ts'
import { type RunningServices, runServices } from '../../support/agent/run-services.ts'

describe.each(['ttrpc', 'grpc'] as const)('GetVersion over %s', (framing) => {
  let services: RunningServices

  beforeEach(async () => {
    services = await runServices()
  })

  afterEach(() => services.close())

  it('returns the versions of the agent, of its interface and of Node.js', async () => {
    const client = clientFor(IntrospectionDefinition, services.connections[framing])
    const versions = { agentVersion: '1.2.3', apiVersion: '0.0.1', nodeVersion: process.version }
    expect(await client.getVersion({})).toEqual(versions)
  })
})
