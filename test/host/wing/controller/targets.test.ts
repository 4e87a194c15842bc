import { Client, status as code, credentials as grpcCredentials, type Metadata } from '@grpc/grpc-js'
import { afterAll, beforeEach, describe, expect, it } from 'vitest'
import {
  EnsureMigrationTargetResponse_Action as Action,
  EnsureMigrationTargetRequest,
  EnsureMigrationTargetResponse,
  VMControllerDefinition,
} from '../../../../src/gen/vm.ts'
import { freePorts } from '../../../support/wing/controller/etcd.ts'
import { startTargetHost, type TargetHost } from '../../../support/wing/controller/target-hosts.ts'
import { credentialsOf, startControllers } from '../../../support/wing/controller/test-controllers.ts'
import { hypervisor, storageLocking } from '../../../support/wing/controller/vms.ts'

const test = await startControllers()
const [a, b, c] = ['a', 'b', 'c'].map((id) => test.clientOf(id))
if (a === undefined || b === undefined || c === undefined) throw new Error('no clients')
const hosts = new Map<string, TargetHost>()
for (const id of ['b', 'c']) hosts.set(id, await startTargetHost(credentialsOf(test.authority, id)))
afterAll(() => {
  for (const host of hosts.values()) host.end()
})

const target = (id: string) => {
  const host = hosts.get(id)
  if (host === undefined) throw new Error(id)
  return host
}
const register = async (client: typeof a, id: string, changes: object = {}) =>
  client.service.registerHost({
    host: {
      id,
      endpoint: hosts.get(id)?.endpoint ?? '127.0.0.1:9',
      qemuVersion: '7.2.22 (Debian 1:7.2+dfsg-7)',
      memoryMib: 1024n,
      ...changes,
    },
  })

beforeEach(async () => {
  for (const host of hosts.values()) Object.assign(host, { refusal: undefined, unhealthy: 0 })
  await register(a, 'a')
  await register(b, 'b', { memoryMib: 4096n })
  await register(c, 'c')
})

let made = 0
const aVm = async (settings: object = {}) => {
  const us = hypervisor('a', 1n, `vm${made++}`)
  const request = storageLocking(us)
  await a.service.ensureVm({ ...request, settings: { ...request.settings, ...settings } })
  return us
}

describe('ForecastTarget', () => {
  it('answers as EnsureMigrationTarget, for a VM that is unknown and one that is known, and changes nothing', async () => {
    const us = hypervisor('a', 1n, `vm${made++}`)
    const vm = storageLocking(us)
    const known = () => a.service.getVm({ namespace: us.namespace, name: us.vmName })
    expect(await a.service.forecastTarget({ vm })).toMatchObject({
      ...{ action: Action.ACTION_LIVE_MIGRATE, host: 'b', targetEndpoint: target('b').endpoint },
    })
    await expect(known()).rejects.toMatchObject({ code: 'NOT_FOUND' })
    await a.service.ensureVm(vm)
    const before = await known()
    const later = { ...vm, us: { ...us, runId: 2n } }
    expect(await a.service.forecastTarget({ vm: later, toHost: 'c' })).toMatchObject({ host: 'c' })
    expect(await a.service.forecastTarget({ vm, toHost: 'a' })).toMatchObject({
      ...{ action: Action.ACTION_SOFT_SHUTDOWN, reason: 'host a: the VM runs there, want another host' },
    })
    expect(await known()).toEqual(before)
    expect(['b', 'c'].map((id) => target(id).instances.has(us.vmName))).toEqual([false, false])
  })

  it('is refused for a VM that another host runs', async () => {
    const us = await aVm()
    const vm = storageLocking({ ...us, podName: us.podName.replace('a/', 'b/') })
    await expect(b.service.forecastTarget({ vm })).rejects.toMatchObject({ code: 'FAILED_PRECONDITION' })
  })
})

describe('ListHosts', () => {
  it('lists the hosts that are there', async () => {
    const { hosts: listed } = await a.service.listHosts({})
    expect(listed.map(({ id }) => id)).toEqual(['a', 'b', 'c'])
  })

  it('shows a processor by all its features', async () => {
    const cpu = `GenuineIntel/6/85/7/${'avx512 '.repeat(500)}`
    await register(a, 'a', { cpu })
    expect((await b.service.listHosts({})).hosts.find(({ id }) => id === 'a')?.cpu).toBe(cpu)
    await expect(register(a, 'a', { cpu: 'x'.repeat(16_385) })).rejects.toMatchObject({
      code: 'INVALID_ARGUMENT',
    })
  })
})

describe('EnsureMigrationTarget', () => {
  it('has a host await the VM, and answers once that is healthy', async () => {
    const us = await aVm()
    target('b').unhealthy = 2
    const traceparent = `00-${'4'.repeat(32)}-${'5'.repeat(16)}-01`
    const answer = await a.vms.ensureMigrationTarget({ us }, { metadata: { traceparent } })
    expect(target('b').traceparent).toBe(traceparent)
    expect(answer).toMatchObject({
      action: Action.ACTION_LIVE_MIGRATE,
      host: 'b',
      targetEndpoint: target('b').endpoint,
    })
    expect(target('b').unhealthy).toBe(0)
    expect(target('b').requests.at(-1)).toMatchObject({
      properties: { key: us.vmName, tenant: '' },
      migrationTarget: { source: '127.0.0.1:9' },
    })
  })

  it('keeps a target that is there, also when another host has more memory by now', async () => {
    const us = await aVm()
    await a.vms.ensureMigrationTarget({ us })
    await register(c, 'c', { memoryMib: 9999n })
    expect(await a.vms.ensureMigrationTarget({ us })).toMatchObject({ host: 'b' })
  })

  it('removes the target of another host when one is named', async () => {
    const us = await aVm()
    await a.vms.ensureMigrationTarget({ us })
    expect(await a.vms.ensureMigrationTarget({ us, toHost: 'c' })).toMatchObject({ host: 'c' })
    expect([target('b').instances.has(us.vmName), target('c').instances.has(us.vmName)]).toEqual([
      false,
      true,
    ])
  })

  it('chooses by network, shared storage and version of QEMU', async () => {
    await register(b, 'b', { memoryMib: 4096n, networks: ['br1'], sharedFolders: ['/srv/one'] })
    await register(c, 'c', { networks: ['br0'], sharedFolders: ['/srv/two'], qemuVersion: '8.2.1' })
    const chosenFor = async (needs: object) => a.vms.ensureMigrationTarget({ us: await aVm({ needs }) })
    for (const [needs, host] of [
      [{ qemuVersion: '7.2.22' }, 'b'],
      [{ networks: ['br0'] }, 'c'],
      [{ networks: ['br1'] }, 'b'],
      [{ sharedPaths: ['/srv/two/disk'] }, 'c'],
      [{ qemuVersion: '8.0' }, 'c'],
    ] as const)
      expect(await chosenFor(needs)).toMatchObject({ action: Action.ACTION_LIVE_MIGRATE, host })
    expect(await chosenFor({ networks: ['br0'], sharedPaths: ['/srv/one/disk'] })).toMatchObject({
      action: Action.ACTION_SOFT_SHUTDOWN,
      reason: 'no host that fits: b: has no network br0; c: does not reach disk /srv/one/disk',
    })
    await expect(aVm({ needs: { sharedPaths: ['disk'] } })).rejects.toMatchObject({
      code: 'INVALID_ARGUMENT',
      message: 'settings.needs.shared_paths: "disk", want an absolute path without . and ..',
    })
  })

  it('asks the next host when one refuses', async () => {
    const us = await aVm()
    target('b').refusal = { code: code.RESOURCE_EXHAUSTED, details: 'no room' }
    expect(await a.vms.ensureMigrationTarget({ us })).toMatchObject({ host: 'c' })
  })

  it('tells a VM to shut down that no host takes, with the hosts’ reasons', async () => {
    const us = await aVm()
    target('b').refusal = { code: code.RESOURCE_EXHAUSTED, details: 'no room' }
    target('c').refusal = { code: code.FAILED_PRECONDITION, details: 'no such bridge' }
    expect(await a.vms.ensureMigrationTarget({ us })).toMatchObject({
      action: Action.ACTION_SOFT_SHUTDOWN,
      reason: 'no host that fits: b: no room; c: no such bridge',
    })
    expect((await a.service.getVm({ namespace: us.namespace, name: us.vmName })).target).toBeUndefined()
  })

  it('tells the reason in the metadata after the answer, too', async () => {
    const us = await aVm({ specification: { devices: { docs: { backend: 'b', share: { tag: 'x' } } } } })
    const { answer, trailers } = await askAsGrpc(us)
    const reason = 'device docs: a virtio-fs share does not move'
    expect(answer).toMatchObject({ action: Action.ACTION_SOFT_SHUTDOWN, reason })
    expect(trailers.get('reason')).toEqual([reason])
  })

  it('tries a host again that does not listen yet', async () => {
    const us = await aVm()
    const [port = 0] = await freePorts(1)
    await register(c, 'c', { endpoint: `127.0.0.1:${port}`, memoryMib: 9999n })
    const asked = a.vms.ensureMigrationTarget({ us })
    const late = await startTargetHost(credentialsOf(test.authority, 'c'), port)
    expect(await asked).toMatchObject({ host: 'c' })
    late.end()
  })

  it('does not trust a host that shows the certificate of another one', async () => {
    const us = await aVm()
    await register(c, 'c', { endpoint: target('b').endpoint, memoryMib: 9999n })
    await expect(a.vms.ensureMigrationTarget({ us, toHost: 'c' })).rejects.toMatchObject({
      code: 'ABORTED',
      message: expect.stringContaining('its certificate is refused'),
    })
    expect(target('b').instances.has(us.vmName)).toBe(false)
  })

  it('answers the hypervisor alone that runs the VM', async () => {
    const us = await aVm()
    await expect(b.vms.ensureMigrationTarget({ us: { ...us, podName: 'b/x' } })).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
    })
    await expect(a.vms.ensureMigrationTarget({ us: hypervisor('a', 1n, 'none') })).rejects.toMatchObject({
      code: 'NOT_FOUND',
    })
  })
})

/** By gRPC's own library, which shows trailing metadata. */
async function askAsGrpc(
  us: ReturnType<typeof hypervisor>,
): Promise<{ answer: EnsureMigrationTargetResponse; trailers: Metadata }> {
  const { ca, cert, key } = test.authority.pemOf('a')
  const [endpoint] = test.endpoints
  const secure = grpcCredentials.createSsl(Buffer.from(ca), Buffer.from(key), Buffer.from(cert))
  const named = { 'grpc.ssl_target_name_override': 'controller' }
  const client = new Client(`127.0.0.1:${endpoint?.port}`, secure, named)
  try {
    return await new Promise((resolve, reject) => {
      let answer: EnsureMigrationTargetResponse | undefined
      const call = client.makeUnaryRequest(
        `/${VMControllerDefinition.fullName}/EnsureMigrationTarget`,
        (request: EnsureMigrationTargetRequest) =>
          Buffer.from(EnsureMigrationTargetRequest.encode(request).finish()),
        (bytes) => EnsureMigrationTargetResponse.decode(bytes),
        EnsureMigrationTargetRequest.fromPartial({ us }),
        (error, response) => {
          if (error) reject(error)
          answer = response
        },
      )
      call.once('status', ({ metadata }) => answer !== undefined && resolve({ answer, trailers: metadata }))
    })
  } finally {
    client.close()
  }
}
