import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { createFileRegistry, fromBinary, toBinary } from '@bufbuild/protobuf'
import { FileDescriptorProtoSchema, FileDescriptorSetSchema } from '@bufbuild/protobuf/wkt'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { generatedRoot } from '../../../src/build/generate.ts'
import { HealthCheckRequest, HealthCheckResponse } from '../../../src/gen/grpc/health/v1/health.ts'
import {
  ServerReflectionRequest,
  ServerReflectionResponse,
} from '../../../src/gen/grpc/reflection/v1/reflection.ts'
import {
  AttachRequest,
  AttachResponse,
  ChangeStateRequest_Change as Change,
  ConnectAgentRequest,
  ConnectAgentResponse,
  EnsureInstanceRequest,
  State,
  WatchInstancesRequest,
  WatchInstancesResponse,
} from '../../../src/gen/microvm/instance/v1/instance.ts'
import { ConsoleIO } from '../../../src/gen/vm.ts'
import { MockInstances } from '../../../src/host/service/mock-instances.ts'
import {
  type DaemonClient,
  type RunningDaemon,
  runMockDaemon,
} from '../../support/host-wing/running-daemon.ts'
import { ensureRequest } from '../../support/wing/requests.ts'

const SERVICE = 'microvm.instance.v1.InstanceService'
const UUID = '6b3f0c62-3d1e-4f0a-9a55-0f4f8f0c2d11'

describe('the instance service', () => {
  let running: RunningDaemon
  let client: DaemonClient

  beforeEach(async () => {
    running = await runMockDaemon()
    client = running.client()
  })

  afterEach(() => running.close())

  it('makes, changes and removes an instance', async () => {
    const { instances } = client
    const made = await instances.ensureInstance(ensureRequest('a'))
    expect(made).toMatchObject({ state: State.PAUSED, properties: { key: 'a' } })
    expect(await instances.getInstance({ key: 'a' })).toEqual(made)
    expect(await instances.listInstances({})).toEqual({ instances: [made] })
    const running = await instances.changeState({ key: 'a', change: Change.RUN })
    expect(running.state).toBe(State.RUNNING)
    const device = { backend: 'file', disk: { serial: 'data' } }
    const plugged = await instances.plug({
      ...{ key: 'a', deviceKey: 'disk', device },
      backend: { file: { path: '/disk', access: 2 } },
    })
    expect(plugged.specification?.backends).toMatchObject({ file: { file: { path: '/disk' } } })
    const backend = { file: { path: '/other', access: 2 } } as const
    const replaced = await instances.replaceBackend({ key: 'a', backendKey: 'file', backend })
    expect(replaced.specification?.backends).toMatchObject({ file: { file: { path: '/other' } } })
    expect((await instances.unplug({ key: 'a', deviceKey: 'disk' })).devices).not.toHaveProperty('disk')
    await instances.remove({ key: 'a' })
    await expect(instances.getInstance({ key: 'a' })).rejects.toMatchObject({
      code: 'NOT_FOUND',
      message: 'instance a: not found',
    })
  })

  it('knows a UUID in any notation', async () => {
    await client.instances.ensureInstance(ensureRequest(`urn:uuid:${UUID.toUpperCase()}`))
    const found = await client.instances.getInstance({ key: UUID.replaceAll('-', '') })
    expect(found.properties?.key).toBe(UUID)
  })

  it('sends changes as they happen', async () => {
    await client.instances.ensureInstance(ensureRequest('a'))
    const stream = client.open(`${SERVICE}/WatchInstances`)
    stream.call.end(WatchInstancesRequest.encode(WatchInstancesRequest.fromPartial({ after: 1n })).finish())
    const seen = () =>
      stream.answers.flatMap((bytes) =>
        WatchInstancesResponse.decode(bytes).changes.map(({ state }) => state),
      )
    await expect.poll(seen).toEqual([State.PAUSED])
    await client.instances.changeState({ key: 'a', change: Change.KILL })
    await expect.poll(seen).toEqual([State.PAUSED, State.STOPPED])
    stream.call.cancel()
    await expect(stream.ended).rejects.toMatchObject({ code: 'CANCELLED' })
    await expect
      .poll(async () => (await client.instances.listCalls({})).calls.map(({ method }) => method))
      .toEqual([`${SERVICE}/ListCalls`])
  })

  it('reserves ports, and sends what they carry in pieces that fit', async () => {
    const { instances } = client
    await instances.ensureInstance(ensureRequest('a'))
    const stream = { key: 'a', container: 'c', exec: 'e', stream: 'stdout' }
    const { port } = await instances.allocatePort(stream)
    expect((await instances.allocatePort({ ...stream, stream: 'stderr' })).port).toBe(port + 1)
    const data = Buffer.alloc(5 * 1024 * 1024, 'x')
    if (running.daemon.instances instanceof MockInstances) running.daemon.instances.write('a', port, data)
    const attached = client.open(`${SERVICE}/Attach`)
    attached.call.end(AttachRequest.encode({ key: 'a', port, offset: 10n }).finish())
    const answers = () => attached.answers.map((bytes) => AttachResponse.decode(bytes))
    const total = () => answers().reduce((sum, answer) => sum + answer.data.length, 0)
    await expect.poll(total).toBe(data.length - 10)
    expect(answers().map(({ offset }) => offset)).toEqual([0n, 1n, 2n, 3n, 4n].map((n) => n * 1048576n + 10n))
    expect((await instances.listStreams({ key: 'a' })).streams).toMatchObject([
      { port, container: 'c', exec: 'e', stream: 'stdout', end: BigInt(data.length) },
      { port: port + 1, stream: 'stderr' },
    ])
  })

  it('carries bytes to the agent and back', async () => {
    await client.instances.ensureInstance(ensureRequest('a'))
    const stream = client.open(`${SERVICE}/ConnectAgent`)
    const send = (message: { key?: string; data?: Uint8Array }) =>
      stream.call.write(ConnectAgentRequest.encode(ConnectAgentRequest.fromPartial(message)).finish())
    send({ key: 'a' })
    send({ data: Buffer.from('hello ') })
    send({ data: Buffer.alloc(65_536, '.') })
    stream.call.end()
    await stream.ended
    const bytes = Buffer.concat(stream.answers.map((answer) => ConnectAgentResponse.decode(answer).data))
    expect(bytes.equals(Buffer.from(`hello ${'.'.repeat(65_536)}`))).toBe(true)
  })

  it('resets an instance and joins its console, named by the metadata', async () => {
    const { bootId } = await client.instances.ensureInstance(ensureRequest('a'))
    const metadata = { instance: 'a' }
    await client.outOfBand.reset({}, { metadata })
    expect((await client.instances.getInstance({ key: 'a' })).bootId).not.toBe(bootId)
    const consoles = [1, 2].map(() => client.open('metropolis.proto.vm.OOBManagement/Console', { metadata }))
    consoles[0]?.call.write(ConsoleIO.encode({ data: Buffer.from('root\n') }).finish())
    for (const { answers } of consoles)
      await expect
        .poll(() => answers.map((bytes) => ConsoleIO.decode(bytes).data))
        .toEqual([Buffer.from('root\n')])
    for (const { call } of consoles) call.end()
    await expect(client.outOfBand.reset({})).rejects.toMatchObject({
      code: 'INVALID_ARGUMENT',
      message: 'metadata instance: missing, want the key of an instance',
    })
  })

  it.each([
    ['no properties', {}, 'INVALID_ARGUMENT', 'properties: missing'],
    [
      'no content',
      { properties: { key: 'a' } },
      'INVALID_ARGUMENT',
      'specification: missing, want it or a document',
    ],
    [
      'a migration',
      { properties: { key: 'a' }, migrationTarget: { source: 'tcp:host:1' } },
      'UNIMPLEMENTED',
      'migration_target: a mock has no machines, want specification',
    ],
    [
      'a migration from nowhere',
      { properties: { key: 'a' }, migrationTarget: { source: '' } },
      'INVALID_ARGUMENT',
      'migration_target.source: want 1 to 256 characters',
    ],
    [
      'the name of a template',
      { properties: { key: 'template-0123456789ab' }, specification: {} },
      'INVALID_ARGUMENT',
      'properties.key: template-0123456789ab: templates are called so, want another one',
    ],
    [
      'a key with a slash',
      { properties: { key: '../a' }, specification: {} },
      'INVALID_ARGUMENT',
      'key "../a": has a control character or "/"',
    ],
    [
      'a tenant that is no name',
      { properties: { key: 'a', tenant: 'a/b' }, specification: {} },
      'INVALID_ARGUMENT',
      'properties.tenant: "a/b" is no name of a tenant',
    ],
  ])('refuses to make an instance of %s', async (_what, request, code, message) => {
    await expect(
      client.instances.ensureInstance(EnsureInstanceRequest.fromPartial(request)),
    ).rejects.toMatchObject({ code, message })
  })

  it('refuses unknown changes and streams, keys that are no keys, and a request of too many parts', async () => {
    const { instances } = client
    await instances.ensureInstance(ensureRequest('a'))
    const refused = (answer: Promise<unknown>, code: string, message: string) =>
      expect(answer).rejects.toMatchObject({ code, message: expect.stringContaining(message) })
    // As another client may send it.
    const unknown = 99 as Change
    await refused(
      instances.changeState({ key: 'a', change: unknown }),
      'INVALID_ARGUMENT',
      'change: 99, want RUN',
    )
    await refused(instances.changeState({ key: 'a' }), 'INVALID_ARGUMENT', 'change: 0, want RUN')
    const hour = { key: 'a', graceMs: 3_600_000 }
    await instances.unplug({ ...hour, deviceKey: 'd' })
    const longer = { ...hour, graceMs: hour.graceMs + 1 }
    const text = 'grace_ms: 3600001, want at most 3600000'
    await refused(instances.changeState({ ...longer, change: Change.STOP }), 'INVALID_ARGUMENT', text)
    await refused(instances.unplug({ ...longer, deviceKey: 'd' }), 'INVALID_ARGUMENT', text)
    const stream = { key: 'a', container: 'c', stream: 'stdlog' }
    await refused(instances.allocatePort(stream), 'INVALID_ARGUMENT', 'stream: "stdlog", want stdin')
    await refused(
      instances.allocatePort({ ...stream, container: '../c', stream: 'stdin' }),
      'INVALID_ARGUMENT',
      'container: "../c" is no id',
    )
    for (const key of ['', 'a\n', 'x'.repeat(129)])
      await refused(instances.getInstance({ key }), 'INVALID_ARGUMENT', 'key "')
    await refused(instances.unplug({ key: 'a', deviceKey: '' }), 'INVALID_ARGUMENT', 'key ""')
    await refused(instances.plug({ key: 'a', deviceKey: 'd' }), 'INVALID_ARGUMENT', 'device: missing')
    await refused(
      instances.replaceBackend({ key: 'a', backendKey: 'output' }),
      'INVALID_ARGUMENT',
      'backend: missing',
    )
    const many = Object.fromEntries(
      Array.from({ length: 20_000 }, (_, index) => [`d${index}`, { serial: {} }]),
    )
    await refused(
      instances.ensureInstance(ensureRequest('b', { specification: { devices: many } })),
      'RESOURCE_EXHAUSTED',
      'specification.devices',
    )
    const labels = { text: 'x'.repeat(64 * 1024) }
    await refused(
      instances.ensureInstance(EnsureInstanceRequest.fromPartial({ properties: { key: 'b', labels } })),
      'INVALID_ARGUMENT',
      'properties.labels: 65540 bytes, want at most 65536',
    )
    const long = { board: { commandLine: 'x'.repeat(4 * 1024 * 1024) } }
    await refused(
      instances.ensureInstance(ensureRequest('b', { specification: long })),
      'RESOURCE_EXHAUSTED',
      'Received message larger than max',
    )
    expect((await instances.listInstances({})).instances).toHaveLength(1)
  })

  it('names the program that answers the calls of VMController', async () => {
    for (const method of ['EnsureMigrationTarget', 'MigrationSwitchover', 'RunLease']) {
      const stream = client.open(`metropolis.proto.vm.VMController/${method}`)
      stream.call.end(new Uint8Array(0))
      await expect(stream.ended).rejects.toMatchObject({
        code: 'UNIMPLEMENTED',
        message: `VMController/${method}: a daemon has none, want ./microvm controller`,
      })
    }
  })

  it('answers the health service for each of its services', async () => {
    const services = [
      '',
      SERVICE,
      ...['OOBManagement', 'Hypervisor', 'VMController'].map((name) => `metropolis.proto.vm.${name}`),
    ]
    for (const service of services) {
      const answer = await client.grpc.call(
        'grpc.health.v1.Health/Check',
        HealthCheckRequest.encode({ service }).finish(),
      )
      expect(HealthCheckResponse.decode(answer).status).toBe(1)
    }
  })

  it('describes every method and field by reflection', async () => {
    const stream = client.open('grpc.reflection.v1.ServerReflection/ServerReflectionInfo')
    const ask = (question: Partial<ServerReflectionRequest>) =>
      stream.call.write(
        ServerReflectionRequest.encode(ServerReflectionRequest.fromPartial(question)).finish(),
      )
    ask({ listServices: '' })
    await expect.poll(() => stream.answers.length).toBe(1)
    const answerAt = (index: number) =>
      ServerReflectionResponse.decode(stream.answers[index] ?? Buffer.alloc(0))
    const services = answerAt(0).listServicesResponse?.service.map(({ name }) => name) ?? []
    expect(services).toEqual(
      expect.arrayContaining([
        SERVICE,
        'metropolis.proto.vm.Hypervisor',
        'metropolis.proto.vm.OOBManagement',
        'metropolis.proto.vm.VMController',
      ]),
    )
    for (const name of services) ask({ fileContainingSymbol: name })
    await expect.poll(() => stream.answers.length).toBe(1 + services.length)
    stream.call.end()
    const files = services.flatMap((_name, index) => {
      const { fileDescriptorResponse } = answerAt(index + 1)
      return (
        fileDescriptorResponse?.fileDescriptorProto.map((bytes) =>
          fromBinary(FileDescriptorProtoSchema, bytes),
        ) ?? []
      )
    })
    const byName = new Map(files.map((file) => [file.name, file]))
    const whole = createFileRegistry(
      fromBinary(FileDescriptorSetSchema, readFileSync(join(generatedRoot, 'descriptors.binpb'))),
    )
    for (const name of ['microvm/instance/v1/instance.proto', 'vm.proto']) {
      const wanted = whole.getFile(name)
      const got = byName.get(name)
      if (wanted === undefined || got === undefined) throw new Error(`${name}: not described`)
      expect(toBinary(FileDescriptorProtoSchema, got)).toEqual(
        toBinary(FileDescriptorProtoSchema, wanted.proto),
      )
    }
  })
})
