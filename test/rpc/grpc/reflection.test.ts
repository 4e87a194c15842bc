import { fromBinary } from '@bufbuild/protobuf'
import { FileDescriptorProtoSchema } from '@bufbuild/protobuf/wkt'
import { status } from '@grpc/grpc-js'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import {
  ServerReflectionRequest,
  ServerReflectionResponse,
} from '../../../src/gen/grpc/reflection/v1/reflection.ts'
import { type RunningTransport, runTransport } from '../../support/agent/running-transport.ts'
import { echo, tableOf } from '../../support/rpc/fake-methods.ts'
import type { GrpcClient } from '../../support/rpc/grpc-client.ts'

const V1 = 'grpc.reflection.v1.ServerReflection'
const V1_ALPHA = 'grpc.reflection.v1alpha.ServerReflection'

describe('server reflection', () => {
  let running: RunningTransport
  let grpc: GrpcClient

  beforeEach(async () => {
    running = await runTransport(
      tableOf({ 'grpc.AgentService/CreateContainer': echo, 'grpc.Health/Check': echo }),
    )
    grpc = running.dialGrpc()
  })

  afterEach(() => running.close())

  function ask(
    requests: readonly Partial<ServerReflectionRequest>[],
    service = V1,
  ): Promise<readonly ServerReflectionResponse[]> {
    const call = grpc.client.makeBidiStreamRequest(
      `/${service}/ServerReflectionInfo`,
      (message: ServerReflectionRequest) => Buffer.from(ServerReflectionRequest.encode(message).finish()),
      (bytes) => ServerReflectionResponse.decode(bytes),
    )
    const responses: ServerReflectionResponse[] = []
    return new Promise((resolve, reject) => {
      call.on('data', (response: ServerReflectionResponse) => responses.push(response))
      call.on('end', () => resolve(responses))
      call.on('error', reject)
      for (const request of requests) call.write(ServerReflectionRequest.fromPartial(request))
      call.end()
    })
  }

  const filesIn = (response: ServerReflectionResponse | undefined) =>
    (response?.fileDescriptorResponse?.fileDescriptorProto ?? []).map(
      (bytes) => fromBinary(FileDescriptorProtoSchema, bytes).name,
    )

  it.each([V1, V1_ALPHA])('lists the services (%s)', async (service) => {
    const [response] = await ask([{ host: 'agent', listServices: '*' }], service)
    expect(response?.listServicesResponse?.service.map(({ name }) => name)).toEqual([
      'grpc.AgentService',
      'grpc.Health',
      'grpc.health.v1.Health',
      V1,
    ])
    expect(response).toMatchObject({
      validHost: 'agent',
      originalRequest: { host: 'agent', listServices: '*' },
    })
  })

  it('describes every service that it lists', async () => {
    const [list] = await ask([{ listServices: '' }])
    const names = list?.listServicesResponse?.service.map(({ name }) => name) ?? []
    const answers = await ask(names.map((name) => ({ fileContainingSymbol: name })))
    expect(answers.map((answer) => filesIn(answer)[0])).toEqual([
      'agent.proto',
      'health.proto',
      'grpc/health/v1/health.proto',
      'grpc/reflection/v1/reflection.proto',
    ])
  })

  it('returns a file with everything that it imports', async () => {
    const [byName] = await ask([{ fileByFilename: 'agent.proto' }])
    expect(filesIn(byName)[0]).toBe('agent.proto')
    expect([...filesIn(byName)].sort()).toEqual(
      ['agent.proto', 'csi.proto', 'google/protobuf/empty.proto', 'oci.proto', 'types.proto'].sort(),
    )
  })

  it.each([
    ['a method', 'grpc.AgentService.CreateContainer', 'agent.proto'],
    ['a message', 'grpc.CreateContainerRequest', 'agent.proto'],
    ['a field', 'grpc.CreateContainerRequest.container_id', 'agent.proto'],
    ['a nested enum', 'grpc.HealthCheckResponse.ServingStatus', 'health.proto'],
    ['the value of a nested enum', 'grpc.HealthCheckResponse.SERVING', 'health.proto'],
    [
      'a oneof',
      'grpc.reflection.v1.ServerReflectionRequest.message_request',
      'grpc/reflection/v1/reflection.proto',
    ],
  ])('finds %s', async (_, fileContainingSymbol, file) => {
    const [answer] = await ask([{ fileContainingSymbol }])
    expect(filesIn(answer)[0]).toBe(file)
  })

  it('answers an unknown name with NOT_FOUND, and then the next request', async () => {
    const answers = await ask([
      { fileByFilename: 'nothing.proto' },
      { fileContainingSymbol: 'grpc.Nothing' },
      { fileContainingExtension: { containingType: 'grpc.CheckRequest', extensionNumber: 7 } },
      { allExtensionNumbersOfType: 'grpc.Nothing' },
      {},
      { allExtensionNumbersOfType: 'grpc.CheckRequest' },
    ])
    const codes = answers.map((answer) => answer.errorResponse?.errorCode)
    const { NOT_FOUND, INVALID_ARGUMENT } = status
    expect(codes).toEqual([NOT_FOUND, NOT_FOUND, NOT_FOUND, NOT_FOUND, INVALID_ARGUMENT, undefined])
    expect(answers[5]?.allExtensionNumbersResponse).toEqual({
      baseTypeName: 'grpc.CheckRequest',
      extensionNumber: [],
    })
  })
})
