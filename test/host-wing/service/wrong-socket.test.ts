import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { AgentError } from '../../../src/base/errors.ts'
import {
  AttachRequest,
  ChangeStateRequest_Change as Change,
  ConnectAgentRequest,
  InstanceServiceDefinition,
  WatchInstancesRequest,
  WatchInstancesResponse,
} from '../../../src/gen/microvm/instance/v1/instance.ts'
import type { SecretServiceDefinition } from '../../../src/gen/microvm/instance/v1/secret.ts'
import {
  ConsoleIO,
  HypervisorDefinition,
  OOBManagementDefinition,
  RunLeaseRequest,
  VMControllerDefinition,
} from '../../../src/gen/vm.ts'
import {
  type DaemonClient,
  type RunningDaemon,
  runMockDaemon,
} from '../../support/host-wing/running-daemon.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import { CONSOLE_ONLY, ensureRequest } from '../../support/wing/requests.ts'

const UUID = '6b3f0c62-3d1e-4f0a-9a55-0f4f8f0c2d11'
const INSTANCE_SERVICE = InstanceServiceDefinition.fullName
const uid = process.getuid?.() ?? 0
const images = temporaryFolder()
const kernel = join(images, 'kernel')
const ownRequest = (key: string) =>
  ensureRequest(key, { specification: { ...CONSOLE_ONLY, board: { kernel } } })

/** The answer's code, or its content. */
type Try = (client: DaemonClient) => Promise<unknown>

/** Each call about the instance of another tenant, and what it answers. */
const CALLS: Readonly<
  Record<
    | keyof (typeof InstanceServiceDefinition)['methods']
    | keyof (typeof SecretServiceDefinition)['methods']
    | keyof (typeof OOBManagementDefinition)['methods']
    | keyof (typeof HypervisorDefinition)['methods']
    | keyof (typeof VMControllerDefinition)['methods'],
    readonly [expected: unknown, call: Try]
  >
> = {
  ensureInstance: ['ALREADY_EXISTS', ({ instances }) => instances.ensureInstance(ownRequest('a'))],
  expand: [
    'PERMISSION_DENIED',
    ({ instances }) => instances.expand({ document: '{kind: VM, spec: {domain: {}}}' }),
  ],
  getInstance: ['NOT_FOUND', ({ instances }) => instances.getInstance({ key: 'a' })],
  listInstances: [{ instances: [] }, ({ instances }) => instances.listInstances({})],
  watchInstances: [
    [],
    async (client) => {
      const request = WatchInstancesRequest.fromPartial({ once: true })
      const answers = await streamed(client, 'WatchInstances', WatchInstancesRequest.encode(request).finish())
      return answers.map((bytes) => WatchInstancesResponse.decode(bytes))
    },
  ],
  changeState: ['NOT_FOUND', ({ instances }) => instances.changeState({ key: 'a', change: Change.KILL })],
  replaceBackend: [
    'NOT_FOUND',
    ({ instances }) => instances.replaceBackend({ key: 'a', backendKey: 'output', backend: { console: {} } }),
  ],
  plug: [
    'NOT_FOUND',
    ({ instances }) =>
      instances.plug({
        key: 'a',
        deviceKey: 'more',
        device: { backend: 'out', serial: {} },
        backend: { console: {} },
      }),
  ],
  unplug: ['NOT_FOUND', ({ instances }) => instances.unplug({ key: 'a', deviceKey: 'console' })],
  snapshot: ['NOT_FOUND', ({ instances }) => instances.snapshot({ key: 'a', name: 'one' })],
  listSnapshots: ['NOT_FOUND', ({ instances }) => instances.listSnapshots({ key: 'a' })],
  revert: ['NOT_FOUND', ({ instances }) => instances.revert({ key: 'a', name: 'one' })],
  removeSnapshot: ['NOT_FOUND', ({ instances }) => instances.removeSnapshot({ key: 'a', name: 'one' })],
  remove: ['NOT_FOUND', ({ instances }) => instances.remove({ key: 'a' })],
  suspendInstance: ['UNIMPLEMENTED', ({ instances }) => instances.suspendInstance({ key: 'a', name: 'one' })],
  listSaved: ['UNIMPLEMENTED', ({ instances }) => instances.listSaved({})],
  deleteSaved: ['UNIMPLEMENTED', ({ instances }) => instances.deleteSaved({ name: 'one' })],
  cloneInstance: [
    'UNIMPLEMENTED',
    ({ instances }) => instances.cloneInstance({ key: 'a', count: 1, name: 'b' }),
  ],
  ensureTemplate: ['PERMISSION_DENIED', ({ instances }) => instances.ensureTemplate({})],
  listTemplates: ['PERMISSION_DENIED', ({ instances }) => instances.listTemplates({})],
  removeTemplate: ['PERMISSION_DENIED', ({ instances }) => instances.removeTemplate({ name: 'one' })],
  allocatePort: [
    'NOT_FOUND',
    ({ instances }) => instances.allocatePort({ key: 'a', container: 'c', stream: 'stdout' }),
  ],
  attach: [
    'NOT_FOUND',
    (client) =>
      streamed(client, 'Attach', AttachRequest.encode({ key: 'a', port: 1024, offset: 0n }).finish()),
  ],
  listStreams: ['NOT_FOUND', ({ instances }) => instances.listStreams({ key: 'a' })],
  connectAgent: [
    'NOT_FOUND',
    (client) =>
      streamed(
        client,
        'ConnectAgent',
        ConnectAgentRequest.encode(ConnectAgentRequest.fromPartial({ key: 'a' })).finish(),
      ),
  ],
  listCalls: [
    { calls: [{ method: `${INSTANCE_SERVICE}/ListCalls`, tenant: 'bob' }] },
    ({ instances }) => instances.listCalls({}),
  ],
  getMetrics: ['PERMISSION_DENIED', ({ instances }) => instances.getMetrics({})],
  setSecret: [
    'PERMISSION_DENIED',
    ({ secrets }) => secrets.setSecret({ uuid: UUID, value: Buffer.from('x'), tenant: 'anne' }),
  ],
  listSecrets: [{ secrets: [] }, ({ secrets }) => secrets.listSecrets({})],
  removeSecret: ['PERMISSION_DENIED', ({ secrets }) => secrets.removeSecret({ uuid: UUID, tenant: 'anne' })],
  reset: ['NOT_FOUND', ({ outOfBand }) => outOfBand.reset({}, { metadata: { instance: 'a' } })],
  console: [
    'NOT_FOUND',
    async (client) => {
      const stream = client.open(`${OOBManagementDefinition.fullName}/Console`, {
        metadata: { instance: 'a' },
      })
      stream.call.write(ConsoleIO.encode({ data: Buffer.from('reboot\n') }).finish())
      await stream.ended
    },
  ],
  drainHost: ['PERMISSION_DENIED', ({ instances }) => instances.drainHost({ draining: true })],
  listHosts: ['PERMISSION_DENIED', ({ instances }) => instances.listHosts({})],
  migrateInstance: ['PERMISSION_DENIED', raw(INSTANCE_SERVICE, 'MigrateInstance')],
  startMigration: ['PERMISSION_DENIED', raw(HypervisorDefinition.fullName, 'StartMigration')],
  ensureMigrationTarget: ['PERMISSION_DENIED', raw(VMControllerDefinition.fullName, 'EnsureMigrationTarget')],
  migrationSwitchover: ['PERMISSION_DENIED', raw(VMControllerDefinition.fullName, 'MigrationSwitchover')],
  runLease: [
    'PERMISSION_DENIED',
    async (client) => {
      const stream = client.open(`${VMControllerDefinition.fullName}/RunLease`)
      stream.call.end(RunLeaseRequest.encode(RunLeaseRequest.fromPartial({})).finish())
      await stream.ended
    },
  ],
}

describe('a call on the socket of another tenant', () => {
  let running: RunningDaemon

  beforeAll(async () => {
    writeFileSync(kernel, '')
    const tenants = ['anne', 'bob'].map((name) => ({ name, uid, folders: [images] }))
    running = await runMockDaemon({ configuration: { tenants } })
    const anne = running.client('anne')
    await anne.instances.ensureInstance(ownRequest('a'))
    await anne.secrets.setSecret({ uuid: UUID, value: Buffer.from('x') })
    await anne.instances.allocatePort({ key: 'a', container: 'c', stream: 'stdout' })
  })

  afterAll(() => running.close())

  it.each(Object.entries(CALLS))('%s', async (_name, [expected, call]) => {
    const before = await running.client().instances.getInstance({ key: 'a' })
    const answer = await call(running.client('bob')).catch((error) => {
      if (error instanceof AgentError) return error.code
      throw error
    })
    if (typeof expected === 'string') expect(answer).toBe(expected)
    else expect(answer).toMatchObject(expected as object)
    expect(await running.client().instances.getInstance({ key: 'a' })).toEqual(before)
  })

  it('belongs to the tenant of the socket, whatever it says', async () => {
    const bob = running.client('bob')
    const made = await bob.instances.ensureInstance(ownRequest('b'))
    expect(made.properties?.tenant).toBe('bob')
    await expect(bob.instances.ensureInstance(ensureRequest('c', { tenant: 'anne' }))).rejects.toMatchObject({
      code: 'PERMISSION_DENIED',
      message: 'properties.tenant: "anne", want "bob" or none on this socket',
    })
    expect((await running.client('anne').instances.listInstances({})).instances).toHaveLength(1)
    expect((await running.client().instances.listInstances({})).instances).toHaveLength(2)
  })
})

async function streamed(
  client: DaemonClient,
  method: string,
  request: Uint8Array,
): Promise<readonly Buffer[]> {
  const stream = client.open(`${INSTANCE_SERVICE}/${method}`)
  stream.call.end(request)
  await stream.ended
  return stream.answers
}

function raw(service: string, method: string): Try {
  return async ({ grpc }) => {
    try {
      return await grpc.call(`${service}/${method}`, new Uint8Array(0))
    } catch (error) {
      const isDenied = error instanceof Error && 'code' in error && error.code === 7
      if (!isDenied) throw error
      return 'PERMISSION_DENIED'
    }
  }
}
