import { once } from 'node:events'
import { readFileSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { neverAborted } from '../../../../src/base/abort.ts'
import {
  type Backend,
  type DeepPartial,
  File_Access,
  InstanceServiceDefinition,
  type Specification,
} from '../../../../src/gen/microvm/instance/v1/instance.ts'
import { HypervisorDefinition, LeaseMode, type VMSpec } from '../../../../src/gen/vm.ts'
import { dialHost } from '../../../../src/host/tls/dial-host.ts'
import { endpointText } from '../../../../src/host/tls/endpoint.ts'
import { clientFor } from '../../../../src/rpc/client.ts'
import { microvm } from '../../../support/microvm/run-microvm.ts'
import { endChild } from '../../../support/processes.ts'
import { removeCgroups } from '../../../support/remove-cgroups.ts'
import { temporaryFolder } from '../../../support/temporary-folder.ts'
import { startControllerProcess } from '../../../support/wing/controller/controller-process.ts'
import { freePorts } from '../../../support/wing/controller/etcd.ts'
import { credentialsOf, startControllers } from '../../../support/wing/controller/test-controllers.ts'
import { cgroupsOf, leftovers } from '../../../support/wing/leftovers.ts'
import { HypervisorHost } from '../../../support/wing/moves/hypervisor-host.ts'

const WAIT_MS = 120_000
const controllers = await startControllers({ hosts: ['a', 'b'] })
const { authority } = controllers
const [controller = { host: '', port: 0 }] = controllers.endpoints
const client = controllers.clientOf('b')
const NAMESPACE = { namespace: 'prod' }

describe('microvm hypervisor with a controller', () => {
  let folder: string
  let a: HypervisorHost
  let b: HypervisorHost

  beforeEach(() => {
    folder = temporaryFolder()
    a = new HypervisorHost(folder, 'a', { authority, controller })
    b = new HypervisorHost(folder, 'b', { authority, controller })
  })

  afterEach(async () => {
    await Promise.all([a.end(), b.end()])
    await expect.poll(() => leftovers(folder).filter((line) => /^\d/.test(line))).toEqual([])
    // No daemon comes after a killed one.
    await removeCgroups([a, b].flatMap(({ state }) => cgroupsOf(state)))
  })

  /** Resolves once controllers know that it awaits its machine. */
  const awaiting = async (
    host: HypervisorHost,
    spec: Partial<VMSpec>,
    words: readonly string[] = [],
    change: DeepPartial<Specification> = {},
  ) => {
    const hypervisor = await host.await(spec, words, change)
    const [endpoint, onlyVm] = [endpointText(host.settings.listen), `${spec.namespace}/web`]
    const isKnown = async () => {
      const { hosts } = await client.service.listHosts({})
      return hosts.some((each) => each.endpoint === endpoint && each.onlyVm === onlyVm)
    }
    await expect.poll(isKnown, { timeout: WAIT_MS }).toBe(true)
    return hypervisor
  }

  const dialled = (as: string, host: HypervisorHost) =>
    dialHost(host.settings.listen, {
      name: host.id,
      credentials: credentialsOf(authority, as),
      signal: neverAborted,
    })

  it('moves its machine away at SIGTERM and by calls, and takes no other', {
    timeout: 2 * WAIT_MS,
  }, async () => {
    const [target, source] = await Promise.all([awaiting(b, NAMESPACE), a.run(NAMESPACE, ['--grace', '100'])])
    const byController = await dialled('controller', b)
    const instances = clientFor(InstanceServiceDefinition, byController)
    const migrationTarget = { source: 'x' }
    const db = instances.ensureInstance({ properties: { key: 'db', tenant: 'prod' }, migrationTarget })
    await expect(db).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
      message: 'properties.key: this hypervisor has web only',
    })
    const other = instances.ensureInstance({ properties: { key: 'web' }, migrationTarget })
    await expect(other).rejects.toThrow('properties.tenant: this hypervisor has web of namespace prod only')
    byController.close()
    const byHost = await dialled('a', b)
    const us = { vmName: 'db', namespace: 'prod', podName: 'a/db', runId: 1n }
    const start = clientFor(HypervisorDefinition, byHost).startMigration({ us })
    await expect(start).rejects.toThrow('instance db: not found')
    byHost.close()
    const running = await dialled('controller', a)
    const taken = clientFor(InstanceServiceDefinition, running).ensureInstance({
      properties: { key: 'web', tenant: 'prod' },
      migrationTarget,
    })
    await expect(taken).rejects.toThrow('migration_target: this hypervisor awaits no machine')
    running.close()

    const before = await a.machines.told()
    source.process.kill('SIGTERM')
    expect(await source.ended, source.log()).toBe(0)
    expect(source.log()).toMatch(/"machine moved".*"host":"b"/)
    await b.machines.counted('web', 5)
    // The console goes on where it was: nothing is lost or told twice.
    expect((await b.machines.told()).end).toBeGreaterThan(before.end)

    const back = await awaiting(a, NAMESPACE)
    const drained = await microvm(['drain', '--socket', b.socket])
    expect(drained, target.log()).toMatchObject({
      status: 0,
      stdout: expect.stringMatching(/^web: runs on a /),
    })
    expect(await target.ended).toBe(0)
    expect(target.log()).toMatch(/"machine moved".*"host":"a"/)
    await a.machines.counted('web', 5)

    // The next process of a host takes its machine again.
    const last = await awaiting(b, NAMESPACE, ['--grace', '100'])
    const moved = await microvm(['migrate', 'web', '--to', 'b', '--socket', a.socket])
    expect(moved, back.log()).toMatchObject({ status: 0, stdout: expect.stringMatching(/^web: runs on b /) })
    expect(await back.ended).toBe(0)
    await b.machines.counted('web', 5)

    // The second signal does not wait for a host.
    last.process.kill('SIGTERM')
    await last.until('the machine is on its way to another host')
    last.process.kill('SIGTERM')
    expect(await last.ended).toBe(0)
  })

  it('presses the power button when no host takes its machine, which may then be started elsewhere', {
    timeout: WAIT_MS,
  }, async () => {
    const hypervisor = await a.run({ namespace: 'alone' }, ['--grace', '1'])
    hypervisor.process.kill('SIGTERM')
    expect(await hypervisor.ended).toBe(0)
    expect(hypervisor.log()).toMatch(/"machine not moved".*no live migration: no host that fits/)
    expect(hypervisor.log()).toContain('the machine is being stopped')
    // It runs nowhere now.
    await b.run({ namespace: 'alone' })
  })

  it('ends at SIGTERM while its start waits for a controller', { timeout: WAIT_MS }, async () => {
    // It connects, and never answers.
    const silent = createServer().listen(0, '127.0.0.1')
    await once(silent, 'listening')
    const address = silent.address()
    const port = typeof address === 'object' ? (address?.port ?? 0) : 0
    const cut = new HypervisorHost(folder, 'a', { authority, controller: { host: '127.0.0.1', port } })
    const hypervisor = cut.start({ namespace: 'silent' })
    await hypervisor.until('"msg":"serving"')
    hypervisor.process.kill('SIGTERM')
    expect(await hypervisor.ended, hypervisor.log()).toBe(0)
    expect(hypervisor.log()).not.toContain('"msg":"the machine runs"')
    silent.close()
  })

  it('ends when no machine comes in time', async () => {
    const hypervisor = a.start({ mode: 3 }, ['--wait', '1'])
    expect(await hypervisor.ended).toBe(1)
    expect(hypervisor.log()).toContain('microvm: hypervisor: no machine has come within 1 s')
  })

  it('ends when its machine does not arrive, and the next process of the source boots it', {
    timeout: WAIT_MS,
  }, async () => {
    const spec = { namespace: 'lost' }
    const [target, source] = await Promise.all([awaiting(b, spec), a.run(spec, ['--grace', '100'])])
    source.process.kill('SIGTERM')
    await target.until('is on its way here')
    source.process.kill('SIGKILL')
    expect(await target.ended).toBe(1)
    expect(target.log()).toMatch(/\nmicrovm: hypervisor: .+\n$/)
    await a.run(spec)
  })

  it('ends at once when the controller says that another host runs its machine', {
    timeout: WAIT_MS,
  }, async () => {
    const hypervisor = await a.run({ namespace: 'ended' })
    const { authoritative: them } = await client.service.getVm({ namespace: 'ended', name: 'web' })
    expect(them?.podName).toBe(`a/${readFileSync(join(a.state, 'pod-id'), 'utf8').trim()}`)
    const second = await b.start({ namespace: 'ended' }).ended
    expect(second).toBe(125)
    await client.vms.migrationSwitchover({ us: { ...them, podName: 'b/web' }, them })
    expect(await hypervisor.ended).toBe(1)
    expect(hypervisor.log()).toContain('microvm: hypervisor: terminated by the controller')
  })

  it('moves its machine away with a full lease, which the target goes on with', {
    timeout: WAIT_MS,
  }, async () => {
    const spec = { namespace: 'full', leaseMode: LeaseMode.LM_FULL_LEASES }
    const change = { backends: { 'root-file': readOnlyRoot(folder) } }
    const [target, source] = await Promise.all([
      awaiting(b, spec, ['--grace', '100'], change),
      a.run(spec, ['--grace', '100'], change),
    ])
    source.process.kill('SIGTERM')
    expect(await source.ended, source.log()).toBe(0)
    expect(source.log()).toMatch(/"machine moved".*"host":"b"/)
    await b.machines.counted('web', 5)
    const { authoritative } = await client.service.getVm({ namespace: 'full', name: 'web' })
    expect(authoritative?.podName).toMatch(/^b\//)
    expect(target.process.exitCode).toBe(null)
  })

  it('ends with its lease when no controller answers', { timeout: WAIT_MS }, async () => {
    const [port = 0, metrics = 0] = await freePorts(2)
    const at = { host: '127.0.0.1', port }
    const only = await startControllerProcess({
      ...{ authority, etcd: controllers.etcd.endpoints, listen: at },
      metrics: { host: '127.0.0.1', port: metrics },
    })
    const leased = new HypervisorHost(folder, 'a', { authority, controller: at })
    const spec = { namespace: 'leased', leaseMode: LeaseMode.LM_FULL_LEASES }
    const hypervisor = await leased.run(spec, [], { backends: { 'root-file': readOnlyRoot(folder) } })
    await endChild(only)
    const sinceMs = performance.now()
    expect(await hypervisor.ended).toBe(1)
    // The lease of 15 s was renewed up to 5 s before.
    expect(performance.now() - sinceMs).toBeLessThan(16_000)
    expect(hypervisor.log()).toContain('microvm: hypervisor: the lease has ended')
    await leased.end()
  })

  it('names what is wrong with its configuration, and makes nothing', async () => {
    const refused = async (text: string, change: Partial<VMSpec> = {}) => {
      const config = join(folder, 'wrong.toml')
      writeFileSync(config, text)
      const hypervisor = a.start(change, ['--config', config])
      expect(await hypervisor.ended).toBe(2)
      return hypervisor.log()
    }
    const own = readFileSync(join(folder, 'a.toml'), 'utf8')
    expect(await refused(`${own}[tenants.x]\nuid = 7\n`)).toContain(
      '--config: tenants: a hypervisor has none',
    )
    expect(await refused(own, { controllerEndpoint: '' })).toContain(
      '--config: host: want controller_endpoint',
    )
    expect(await refused(own.replace('"a"', '"A"'))).toContain('wrong.toml: host.id: "A", want 1 to 63')
  })
})

/** Of which nothing is fenced. */
function readOnlyRoot(folder: string): DeepPartial<Backend> {
  return { file: { path: join(folder, 'images', 'root'), access: File_Access.READ_ONLY } }
}
