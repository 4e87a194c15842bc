import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import { describe, expect, it } from 'vitest'
import { RunLeaseUpdate_Status as Status } from '../../../../src/gen/vm.ts'
import { openController } from '../../../../src/host/controller/client.ts'
import { etcdSeconds } from '../../../../src/host/controller/leases.ts'
import { EtcdClient } from '../../../../src/host/controller/store/etcd-client.ts'
import { leaseKey } from '../../../../src/host/controller/store/keys.ts'
import { credentialsOf, startControllers } from '../../../support/wing/controller/test-controllers.ts'
import { fullLeases, hypervisor, storageLocking } from '../../../support/wing/controller/vms.ts'

const TTL_MS = 1000n
const test = await startControllers({ controllers: 2 })
const [a, b] = [test.clientOf('a', 0), test.clientOf('b', 1)]
const within = AbortSignal.timeout(60_000)

describe('RenewLease', () => {
  it('grants a lease for the time of the VM, with the caller’s nonce', async () => {
    const us = hypervisor('a')
    const { generation: epoch } = await a.service.ensureVm(fullLeases(us, 30_000n))
    for (const nonce of [Buffer.from('first'), Buffer.from('second')]) {
      const { nonce: echoed, ...grant } = await a.service.renewLease({ us, nonce })
      expect(grant).toEqual({ status: Status.STATUS_OK, epoch, ttlMs: 30_000n })
      expect(Buffer.from(echoed)).toEqual(nonce)
    }
    expect(test.lines.filter(({ message }) => message === 'lease')).toHaveLength(1)
  })

  it('has its record in etcd before it answers, for longer than the grant', async () => {
    const us = hypervisor('a', 1n, 'recorded')
    await a.service.ensureVm(fullLeases(us, 30_000n))
    await a.service.renewLease({ us, nonce: Buffer.of(1) })
    const etcd = new EtcdClient(test.etcd)
    const { kvs } = await etcd.range({ key: leaseKey({ namespace: 'default', name: 'recorded' }) })
    const { TTL: seconds } = await etcd.keepAlive(kvs[0]?.lease ?? 0n)
    etcd.close()
    expect(Number(seconds)).toBe(etcdSeconds(30_000n))
    expect(Number(seconds)).toBeGreaterThanOrEqual(35)
  })

  it('tells a hypervisor to end that does not run the VM any more', async () => {
    const [them, us] = [hypervisor('a', 1n, 'ended'), hypervisor('a', 2n, 'ended')]
    const { generation } = await a.service.ensureVm(fullLeases(them, 30_000n))
    await a.service.renewLease({ us: them, nonce: Buffer.of(1) })
    // The same pod: its holder is the same.
    await a.vms.migrationSwitchover({ us, them })
    expect(await a.service.renewLease({ us: them, nonce: Buffer.of(2) })).toMatchObject({
      status: Status.STATUS_TERMINATE,
    })
    expect(await a.service.renewLease({ us, nonce: Buffer.of(2) })).toMatchObject({
      status: Status.STATUS_OK,
      epoch: generation + 1n,
    })
  })

  it.each([0n, 999n, 3_600_001n, 2n ** 63n, 2n ** 64n - 1n])('refuses leases of %s ms', async (ttl) => {
    await expect(a.service.ensureVm(fullLeases(hypervisor('a', 1n, 'times'), ttl))).rejects.toMatchObject({
      code: 'INVALID_ARGUMENT',
      message: `settings.lease_ttl_ms: ${ttl}, want 1000 to 3600000`,
    })
  })

  it('refuses a VM without leases, a VM that is not there, and a request without a nonce', async () => {
    const us = hypervisor('a', 1n, 'locked')
    await a.service.ensureVm(storageLocking(us))
    const renew = (vm: string, nonce = Buffer.of(1)) =>
      a.service.renewLease({ us: hypervisor('a', 1n, vm), nonce })
    await expect(renew('locked')).rejects.toMatchObject({ code: 'FAILED_PRECONDITION' })
    await expect(renew('nothing')).rejects.toMatchObject({ code: 'NOT_FOUND' })
    for (const nonce of [Buffer.alloc(0), Buffer.alloc(65)])
      await expect(renew('locked', nonce)).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' })
  })

  it('keeps the time of a lease as it was', async () => {
    const us = hypervisor('a', 1n, 'kept')
    await a.service.ensureVm(fullLeases(us, 30_000n))
    await expect(a.service.ensureVm(fullLeases(us, 60_000n))).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
    })
  })
})

describe('a renewal', () => {
  it('goes to another controller after one that was given up', async () => {
    const us = hypervisor('a', 1n, 'silent')
    await a.service.ensureVm(fullLeases(us, 30_000n))
    const [working = { host: '', port: 0 }] = test.endpoints
    const sockets = new Set<Socket>()
    const proxy = createServer((socket) => {
      const passed = connect(working)
      for (const end of [socket, passed]) sockets.add(end.on('error', () => {}))
      socket.pipe(passed).pipe(socket)
    }).listen(0, '127.0.0.1')
    await once(proxy, 'listening')
    const { port } = proxy.address() as AddressInfo
    const endpoints = [{ host: '127.0.0.1', port }, working]
    const client = openController({ endpoints, credentials: credentialsOf(test.authority, 'a') })
    const renew = (ms: number) =>
      client.service.renewLease({ us, nonce: Buffer.of(1) }, { signal: AbortSignal.timeout(ms) })
    await renew(10_000)
    for (const socket of sockets) socket.unpipe().pause()
    await expect(renew(500)).rejects.toMatchObject({ name: 'TimeoutError' })
    // Each try ends before the client would turn to another controller by itself.
    await expect
      .poll(() => renew(1000).catch(() => {}), { timeout: 10_000 })
      .toMatchObject({
        status: Status.STATUS_OK,
      })
    for (const socket of sockets) socket.destroy()
    proxy.close()
    client.close()
  })
})

describe('another host', () => {
  it('or another pod of the host gets a VM only once its lease has ended', async () => {
    const them = hypervisor('a', 1n, 'pods')
    const us = { ...them, podName: 'a/other', runId: 2n }
    await a.service.ensureVm(fullLeases(them, TTL_MS))
    await a.service.renewLease({ us: them, nonce: Buffer.of(1) })
    const message = 'vm default/pods: the lease of another hypervisor may not have ended, want it ended'
    await expect(a.service.ensureVm(fullLeases(us, TTL_MS))).rejects.toMatchObject({ message })
    await expect(a.vms.migrationSwitchover({ us, them })).rejects.toThrow('may not have ended')
    while (!(await succeeds(a.service.ensureVm(fullLeases(us, TTL_MS))))) within.throwIfAborted()
    await expect(a.service.ensureVm(fullLeases(them, TTL_MS))).rejects.toThrow('a/other (run 2) runs it')
  })

  it('does not get a VM that was taken back, which may run with the lease of the run before', async () => {
    const [them, us] = [hypervisor('a', 1n, 'back'), hypervisor('a', 2n, 'back')]
    const other = fullLeases(hypervisor('b', 1n, 'back'), 30_000n)
    await a.service.ensureVm(fullLeases(them, 30_000n))
    await a.service.renewLease({ us: them, nonce: Buffer.of(1) })
    await a.vms.migrationSwitchover({ us, them })
    const message = 'vm default/back: the lease of another hypervisor may not have ended, want it ended'
    await expect(b.service.ensureVm(other)).rejects.toMatchObject({ message })
    // One grant takes the place of the other, and is extended.
    for (const nonce of [Buffer.of(2), Buffer.of(3)])
      expect(await a.service.renewLease({ us, nonce })).toMatchObject({ status: Status.STATUS_OK })
    await expect(b.service.ensureVm(other)).rejects.toMatchObject({ message })
  })

  it('gets a VM only once the lease and its drift have passed since the last grant', async () => {
    const [them, us] = [hypervisor('a', 1n, 'taken'), hypervisor('b', 1n, 'taken')]
    const { generation } = await a.service.ensureVm(fullLeases(them, TTL_MS))
    await a.service.renewLease({ us: them, nonce: Buffer.of(1) })
    await a.service.renewLease({ us: them, nonce: Buffer.of(2) })
    const grantedMs = performance.now()
    await expect(b.vms.migrationSwitchover({ us, them })).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
      message: 'vm default/taken: the lease of a/i-taken (run 1) may not have ended, want it ended',
    })
    while (!(await succeeds(b.vms.migrationSwitchover({ us, them })))) within.throwIfAborted()
    expect(performance.now() - grantedMs).toBeGreaterThan(Number(TTL_MS) * 1.1)
    expect(await a.service.renewLease({ us: them, nonce: Buffer.of(3) })).toMatchObject({
      status: Status.STATUS_TERMINATE,
    })
    expect(await b.service.renewLease({ us, nonce: Buffer.of(1) })).toMatchObject({
      status: Status.STATUS_OK,
      epoch: generation + 1n,
    })
  })
})

async function succeeds(call: Promise<unknown>): Promise<boolean> {
  return call.then(
    () => true,
    (error) => {
      expect(error).toMatchObject({ code: 'FAILED_PRECONDITION' })
      return false
    },
  )
}
