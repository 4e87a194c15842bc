import { once } from 'node:events'
import { status } from '@grpc/grpc-js'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import {
  HealthCheckRequest,
  HealthCheckResponse,
  HealthListResponse,
} from '../../../src/gen/grpc/health/v1/health.ts'
import { type RunningTransport, runTransport } from '../../support/agent/running-transport.ts'
import { echo, tableOf } from '../../support/rpc/fake-methods.ts'
import type { GrpcClient } from '../../support/rpc/grpc-client.ts'

const SERVING = 1
const SERVICE_UNKNOWN = 3

describe('grpc.health.v1.Health', () => {
  let running: RunningTransport
  let grpc: GrpcClient

  beforeEach(async () => {
    running = await runTransport(tableOf({ 'grpc.AgentService/CreateContainer': echo }))
    grpc = running.dialGrpc()
  })

  afterEach(() => running.close())

  const requestFor = (service: string) => HealthCheckRequest.encode({ service }).finish()

  it.each(['', 'grpc.AgentService'])('reports %j as serving', async (service) => {
    const response = await grpc.call('grpc.health.v1.Health/Check', requestFor(service))
    expect(HealthCheckResponse.decode(response).status).toBe(SERVING)
  })

  it('answers NOT_FOUND for other services', async () => {
    const response = grpc.call('grpc.health.v1.Health/Check', requestFor('x'))
    await expect(response).rejects.toMatchObject({ code: status.NOT_FOUND, details: 'unknown service: x' })
  })

  it('lists its services', async () => {
    const response = await grpc.call('grpc.health.v1.Health/List', Buffer.alloc(0))
    expect(HealthListResponse.decode(response).statuses).toEqual({
      '': { status: SERVING },
      'grpc.AgentService': { status: SERVING },
    })
  })

  it.each([
    ['', SERVING],
    ['x', SERVICE_UNKNOWN],
  ])('streams the status of %j until the client ends the watch', async (service, expected) => {
    const watch = grpc.client.makeServerStreamRequest(
      '/grpc.health.v1.Health/Watch',
      (bytes: Uint8Array) => Buffer.from(bytes),
      (bytes) => HealthCheckResponse.decode(bytes),
      requestFor(service),
    )
    const [first] = await once(watch, 'data')
    expect(first).toEqual({ status: expected })
    watch.cancel()
    const [error] = await once(watch, 'error')
    expect(error).toMatchObject({ code: status.CANCELLED })
  })
})
