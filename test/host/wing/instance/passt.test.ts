import type { ChildProcess } from 'node:child_process'
import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import {
  Backend,
  Device,
  BackendStatus_Health as Health,
  InstanceServiceDefinition,
  MigrateInstanceRequest,
  type Specification,
} from '../../../../src/gen/microvm/instance/v1/instance.ts'
import { readExits } from '../../../../src/host/instance/holder/holder-files.ts'
import { makeNetworkNamespace, type NetworkNamespace } from '../../../support/host/network-namespace.ts'
import { type DaemonClient, daemonClient } from '../../../support/host-wing/running-daemon.ts'
import { endChild } from '../../../support/processes.ts'
import { temporaryFolder } from '../../../support/temporary-folder.ts'
import { startDaemonProcess } from '../../../support/wing/daemon-process.ts'
import { debianPrograms } from '../../../support/wing/debian-programs.ts'
import { leftovers } from '../../../support/wing/leftovers.ts'
import { hostAuthority } from '../../../support/wing/moves/host-certificates.ts'
import { lifePlan } from '../../../support/wing/real-wing.ts'
import { ensureRequest } from '../../../support/wing/requests.ts'

/** QEMU waits for the connection to passt in the background. */
const SOON = { timeout: 20_000 }

describe('Debian 12’s passt', () => {
  const folder = temporaryFolder()
  const state = join(folder, 'state')
  let namespace: NetworkNamespace
  let daemon: ChildProcess
  let client: DaemonClient & { close(): void }

  beforeAll(async () => {
    namespace = await makeNetworkNamespace('host0 type veth peer name outside0')
    for (const name of ['host0', 'outside0']) namespace.ip(`link set ${name} up`)
    const env = { PATH: `${await debianPrograms('passt')}:${process.env.PATH}` }
    const config = join(folder, 'daemon.toml')
    writeFileSync(config, hostConfiguration())
    daemon = await startDaemonProcess(state, { enter: namespace.enter, env, words: ['--config', config] })
    client = daemonClient(join(state, 'admin.sock'))
  })

  afterEach(async () => {
    await client.instances.remove({ key: 'web' }).catch(() => {})
  })

  afterAll(async () => {
    client.close()
    await endChild(daemon)
    expect(leftovers(state)).toEqual([])
    await namespace.close()
  })

  const ensure = (replaceable: boolean) => client.instances.ensureInstance(request(folder, replaceable))
  const get = () => client.instances.getInstance({ key: 'web' })
  const move = async () => {
    const { fullName, methods } = InstanceServiceDefinition
    const { call, ended } = client.open(`${fullName}/${methods.migrateInstance.name}`)
    call.resume()
    const request = MigrateInstanceRequest.fromPartial({ key: 'web', toHost: 'b', withoutAgent: true })
    call.end(MigrateInstanceRequest.encode(request).finish())
    await ended
  }
  const health = async () => (await get()).backends.net?.health

  it('does not start on a host without a default route, by name', async () => {
    await expect(ensure(true)).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
      message: expect.stringMatching(
        /^backends\.net: this host has no interface with a default route, .* \(passt-\w+: ended with status 1 .*: External interface not usable\)$/,
      ),
    })
    await expect(get()).rejects.toMatchObject({ code: 'NOT_FOUND' })
  })

  it('serves QEMU as the user of the instance, and is started again behind a hub', async () => {
    namespace.ip('address add 192.0.2.2/24 dev host0')
    namespace.ip('route add default via 192.0.2.1 dev host0')
    const made = await ensure(true)
    expect(made.backends.net?.health).toBe(Health.READY)
    const first = await passtOf(state)
    expect(statusOf(first)).toContain(`\nUid:\t${made.uid}\t`)
    await expect.poll(() => connectionOf(made.qemuPid), SOON).toMatch(/./)
    const before = connectionOf(made.qemuPid)
    process.kill(first, 'SIGKILL')
    await expect.poll(() => connectionOf(made.qemuPid).replace(before, ''), SOON).toMatch(/./)
    expect([0, first]).not.toContain(await passtOf(state))
    expect(await health()).toBe(Health.READY)
  })

  it.each([true, false])(
    'keeps its machine from moving, by name, and serves it on: replaceable %s',
    async (replaceable) => {
      const { qemuPid } = await ensure(replaceable)
      const pid = await passtOf(state)
      await expect(move()).rejects.toMatchObject({
        code: 'FAILED_PRECONDITION',
        message: 'backends.net: its connections would break: passt has them in its memory',
      })
      await expect.poll(() => connectionOf(qemuPid), SOON).toMatch(/./)
      expect(await get()).toMatchObject({ qemuPid })
      expect(await health()).toBe(Health.READY)
      expect(await passtOf(state)).toBe(pid)
    },
  )

  it('leaves another card with a dead network', async () => {
    await ensure(false)
    process.kill(await passtOf(state), 'SIGKILL')
    await expect.poll(health, SOON).toBe(Health.DEAD)
  })
})

/** Of a host that may move machines, whose controllers are away. */
function hostConfiguration(): string {
  const { ca, folder } = hostAuthority('hosts', ['a'])
  const fields = {
    ...{ id: 'a', listen: '127.0.0.1:7443', controllers: ['127.0.0.1:7440'], ca },
    ...{ cert: join(folder, 'a.pem'), key: join(folder, 'a.key') },
  }
  const lines = Object.entries(fields).map(([name, value]) => `${name} = ${JSON.stringify(value)}`)
  return `[host]\n${lines.join('\n')}\n`
}

function request(folder: string, replaceable: boolean) {
  const { specification } = lifePlan(join(folder, 'disks')).request
  const { board, devices, backends } = specification as Specification
  const card = Device.fromPartial({ backend: 'net', slot: 7, nic: { mac: '52:54:00:00:00:09', replaceable } })
  const change = {
    board,
    devices: { ...devices, card },
    backends: { ...backends, net: Backend.fromPartial({ passt: {} }) },
  }
  return ensureRequest('web', { specification: change })
}

/** The pid of the one passt that runs; 0 for none. */
async function passtOf(state: string): Promise<number> {
  const [name = ''] = readdirSync(join(state, 'instances'))
  const children = await readExits(join(state, 'instances', name))
  return children.find((child) => child.name.startsWith('passt') && child.exit === undefined)?.pid ?? 0
}

function statusOf(pid: number): string {
  return readFileSync(`/proc/${pid}/status`, 'utf8')
}

/** The inode of passt's end of its connection to QEMU, which is listed in QEMU's network namespace; empty without one. */
function connectionOf(qemu: number): string {
  const list = readFileSync(`/proc/${qemu}/net/unix`, 'utf8')
  return / 0001 03 +(\d+) run\/passt-\w+\.sock$/m.exec(list)?.[1] ?? ''
}
