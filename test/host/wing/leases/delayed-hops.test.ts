import type { ChildProcess } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import {
  Backend,
  ChangeStateRequest_Change as Change,
  ChangeStateRequest,
  EnsureInstanceRequest,
  File_Access,
  type Specification,
  State,
} from '../../../../src/gen/microvm/instance/v1/instance.ts'
import { LeaseMode } from '../../../../src/gen/vm.ts'
import { type Endpoint, endpointText } from '../../../../src/host/tls/endpoint.ts'
import { daemonClient } from '../../../support/host-wing/running-daemon.ts'
import { endChild } from '../../../support/processes.ts'
import { temporaryFolder } from '../../../support/temporary-folder.ts'
import { startControllerProcess } from '../../../support/wing/controller/controller-process.ts'
import { DelayedHop, type Direction } from '../../../support/wing/controller/delayed-hop.ts'
import { type Etcd, freePorts, startEtcd } from '../../../support/wing/controller/etcd.ts'
import { CountingMachines } from '../../../support/wing/counting-machine.ts'
import { startDaemonProcess } from '../../../support/wing/daemon-process.ts'
import { leftovers } from '../../../support/wing/leftovers.ts'
import { hostAuthority } from '../../../support/wing/moves/host-certificates.ts'
import { image } from '../../../support/wing/real-wing.ts'
import { tinyGuest } from '../../../support/wing/tiny-guest.ts'

/** The shortest: an answer that takes twice as long is still waited for. */
const TTL_MS = 1000
const CALL_MS = 20_000
const WAIT_MS = 40_000
const ENDED = { state: State.TERMINATED, reason: 'the lease has ended' }
const authority = hostAuthority('hosts', ['controller', 'a', 'b'])

/** A daemon that is a process, and what it logs. */
class Host {
  readonly machines = new CountingMachines()
  readonly client = daemonClient(join(this.machines.folder, 'admin.sock'))
  log = ''
  readonly #id: string
  readonly #specification: Specification
  #daemon: ChildProcess | undefined

  constructor(id: string) {
    this.#id = id
    const path = image(this.machines.disks, 'root', 16)
    const root = Backend.fromPartial({ file: { path, access: File_Access.SCRATCH } })
    const { specification } = this.machines.request('', {
      board: { kernel: tinyGuest(this.machines.disks, 'idle') },
      backends: { 'root-file': root },
    })
    if (specification === undefined) throw new Error('no specification')
    this.#specification = specification
  }

  async open(controller: Endpoint): Promise<void> {
    const [port = 0] = await freePorts(1)
    const fields = {
      ...{ id: this.#id, listen: `127.0.0.1:${port}`, controllers: [endpointText(controller)] },
      ...{ ca: authority.ca, cert: join(authority.folder, `${this.#id}.pem`) },
      key: join(authority.folder, `${this.#id}.key`),
    }
    const lines = Object.entries(fields).map(([name, value]) => `${name} = ${JSON.stringify(value)}`)
    const config = join(this.machines.folder, 'daemon.toml')
    writeFileSync(config, `[host]\n${lines.join('\n')}\n`)
    this.#daemon = await startDaemonProcess(this.machines.folder, {
      enter: ['setpriv', '--pdeathsig', 'KILL'],
      words: ['--config', config],
    })
    this.#daemon.stderr?.on('data', (bytes) => {
      this.log += bytes
    })
  }

  async ensure(key: string): Promise<void> {
    const lease = { mode: LeaseMode.LM_FULL_LEASES, ttlMs: TTL_MS }
    const request = EnsureInstanceRequest.fromPartial({
      ...{ properties: { key, lease }, specification: this.#specification },
    })
    await this.client.instances.ensureInstance(request, { timeoutMs: CALL_MS })
  }

  /** Has it run. A machine whose daemon had no time to renew its lease is started again. */
  async start(key: string): Promise<void> {
    const started = async () => {
      await this.ensure(key)
      await this.run(key)
      return this.pids(key)
    }
    await expect.poll(started, { timeout: WAIT_MS, interval: 100 }).toHaveLength(1)
  }

  async run(key: string): Promise<void> {
    const request = ChangeStateRequest.fromPartial({ key, change: Change.RUN })
    await this.client.instances.changeState(request, { timeoutMs: CALL_MS })
  }

  async get(key: string) {
    return await this.client.instances.getInstance({ key }, { timeoutMs: CALL_MS })
  }

  pids(key: string): readonly number[] {
    return this.machines.pidsOf('qemu', key)
  }

  async end(): Promise<void> {
    const { instances } = await this.client.instances.listInstances({}, { timeoutMs: CALL_MS })
    for (const { properties } of instances)
      await this.client.instances.remove({ key: properties?.key ?? '' }, { timeoutMs: CALL_MS })
    this.client.close()
    if (this.#daemon !== undefined) await endChild(this.#daemon)
    expect(leftovers(this.machines.folder)).toEqual([])
  }
}

describe('a machine with LM_FULL_LEASES, with a hop that takes twice the TTL', () => {
  const [a, b] = [new Host('a'), new Host('b')]
  const controllers: ChildProcess[] = []
  let etcd: Etcd
  let hops: { readonly controller: DelayedHop; readonly etcd: DelayedHop }

  beforeAll(async () => {
    etcd = await startEtcd(temporaryFolder())
    const [member] = etcd.endpoints
    if (member === undefined) throw new Error('no member')
    const toEtcd = await DelayedHop.to(member)
    const [own = 0, other = 0, ...metrics] = await freePorts(4)
    const listens = [own, other].map((port) => ({ host: '127.0.0.1', port }))
    for (const [index, endpoint] of [toEtcd.endpoint, member].entries())
      controllers.push(
        await startControllerProcess({
          ...{ authority, etcd: [endpoint], listen: listens[index] ?? member },
          metrics: { host: '127.0.0.1', port: metrics[index] ?? 0 },
        }),
      )
    hops = { controller: await DelayedHop.to(listens[0] ?? member), etcd: toEtcd }
    await Promise.all([a.open(hops.controller.endpoint), b.open(listens[1] ?? member)])
  })

  afterAll(async () => {
    await a.end()
    await b.end()
    for (const controller of controllers) await endChild(controller, 'SIGKILL')
    hops.controller.close()
    hops.etcd.close()
    await etcd.end()
  })

  /** Has host b ask until it gets the machine, which must have ended at a then. */
  async function goesToOther(key: string): Promise<void> {
    const message = `vm default/${key}: the lease of another hypervisor may not have ended, want it ended`
    await expect(b.ensure(key)).rejects.toMatchObject({ code: 'FAILED_PRECONDITION', message })
    await b.start(key)
    expect(a.pids(key)).toEqual([])
  }

  it.each<readonly [string, Direction]>([
    ['host to controller', 'there'],
    ['controller to host', 'back'],
  ])('does not start by a grant that has ended: %s', async (_, direction) => {
    const key = `first-${direction}`
    const { log } = a
    await a.client.instances.listHosts({}, { timeoutMs: CALL_MS })
    void hops.controller.delay(direction, 2 * TTL_MS)
    const ensured = a.ensure(key)
    await expect.poll(() => a.log.slice(log.length)).toContain('"reason":"it has ended"')
    expect(a.pids(key)).toEqual([])
    hops.controller.calm(direction)
    await ensured.catch(() => {})
    await a.start(key)
    await a.client.instances.remove({ key }, { timeoutMs: CALL_MS })
  })

  it('has ended before anything late arrives, and before another host gets it', async () => {
    const all = (['controller', 'etcd'] as const).flatMap((to) =>
      (['there', 'back'] as const).map((direction) => ({ to, direction })),
    )
    const taken: Promise<void>[] = []
    for (const { to, direction } of all) {
      const [key, hop] = [`${to}-${direction}`, hops[to]]
      await a.start(key)
      const isLate = hop.delay(direction, 2 * TTL_MS)
      const gone = goesToOther(key)
      gone.catch(() => {})
      taken.push(gone)
      await isLate
      expect(a.pids(key), key).toEqual([])
      hop.calm(direction)
      await expect.poll(() => a.get(key)).toMatchObject(ENDED)
    }
    await Promise.all(taken)
    // No late grant has changed that.
    for (const { to, direction } of all) expect(await a.get(`${to}-${direction}`)).toMatchObject(ENDED)
  })
})
