import { describe, expect, it } from 'vitest'
import { silentLogger } from '../../../../src/base/log.ts'
import {
  RunLeaseRequest,
  RunLeaseUpdate_Status as Status,
  VMControllerDefinition,
} from '../../../../src/gen/vm.ts'
import { startController } from '../../../../src/host/controller/controller.ts'
import { EtcdClient } from '../../../../src/host/controller/store/etcd-client.ts'
import { CONTROLLER } from '../../../../src/host/tls/credentials.ts'
import { dialHost } from '../../../../src/host/tls/dial-host.ts'
import { freePorts } from '../../../support/wing/controller/etcd.ts'
import { credentialsOf, startControllers } from '../../../support/wing/controller/test-controllers.ts'
import { fullLeases, hypervisor, storageLocking } from '../../../support/wing/controller/vms.ts'

const test = await startControllers({ controllers: 2 })
const [a, b] = [test.clientOf('a', 0), test.clientOf('b', 1)]
const within = AbortSignal.timeout(60_000)

describe('RunLease', () => {
  it('tells the source to end within a second after a switchover at another controller', async () => {
    const [them, us] = [hypervisor('a'), hypervisor('b')]
    const { generation: epoch } = await a.service.ensureVm(storageLocking(them))
    const updates = a.runLease(them, within)
    expect((await updates.next()).value).toMatchObject({ status: Status.STATUS_OK, epoch, ttlMs: 0n })
    const told = updates.next().then(({ value }) => ({ value, ms: performance.now() }))
    await b.vms.migrationSwitchover({ us, them })
    const switchedMs = performance.now()
    const { value, ms } = await told
    expect(value).toMatchObject({ status: Status.STATUS_TERMINATE, epoch: epoch + 1n })
    expect(ms - switchedMs).toBeLessThan(1000)
    await updates.return()
  })

  it('tells the target at once that it runs the VM, whichever controller it asks', async () => {
    for (let round = 0; round < 10; round++) {
      const [them, us] = [hypervisor('a', 1n, `at-once${round}`), hypervisor('b', 1n, `at-once${round}`)]
      await a.service.ensureVm(storageLocking(them))
      const own = test.clientOf('b', 0)
      await b.vms.migrationSwitchover({ us, them })
      const updates = own.runLease(us, within)
      expect((await updates.next()).value).toMatchObject({ status: Status.STATUS_OK })
      await updates.return()
    }
  })

  it('tells the time of a lease, but extends none', async () => {
    const us = hypervisor('a', 1n, 'leased')
    const { generation: epoch } = await a.service.ensureVm(fullLeases(us, 30_000n))
    const updates = a.runLease(us, within)
    expect((await updates.next()).value).toEqual({
      ...{ status: Status.STATUS_OK, epoch, ttlMs: 30_000n },
      nonce: new Uint8Array(0),
    })
    await updates.return()
  })

  it('tells a run to end that was cut off while its VM was removed', async () => {
    const [old, us] = [hypervisor('a', 1n, 'removed'), hypervisor('b', 1n, 'removed')]
    await a.service.ensureVm(storageLocking(old))
    await b.vms.migrationSwitchover({ us, them: old })
    await b.service.removeVm({ us })
    const updates = a.runLease(old, within)
    expect((await updates.next()).value).toMatchObject({ status: Status.STATUS_TERMINATE })
    await updates.return()
  })

  it('tells nobody to end because a VM is not known', async () => {
    const unknown = a.runLease(hypervisor('a', 1n, 'unknown'), within)
    await expect(unknown.next()).rejects.toMatchObject({ code: 'NOT_FOUND' })
  })

  it('ends with its controller', async () => {
    const us = hypervisor('a', 1n, 'stopped')
    await a.service.ensureVm(storageLocking(us))
    const [port = 0] = await freePorts(1)
    const listen = { host: '127.0.0.1', port }
    const credentials = credentialsOf(test.authority, CONTROLLER)
    const controller = await startController({ etcd: test.etcd, listen, credentials, log: silentLogger() })
    const caller = { name: CONTROLLER, credentials: credentialsOf(test.authority, 'a'), signal: within }
    const connection = await dialHost(listen, caller)
    const call = connection.stream(VMControllerDefinition.fullName, 'RunLease')
    await call.send(RunLeaseRequest.encode(RunLeaseRequest.fromPartial({ us })).finish())
    call.end()
    await call.answers.next()
    const closed = controller.close()
    await expect(call.answers.next()).rejects.toMatchObject({
      code: 'UNAVAILABLE',
      message: 'the controller stops',
    })
    await closed
    connection.close()
  })

  it('tells of changes after a compaction that its watch has missed', async () => {
    const [them, us] = [hypervisor('a', 1n, 'compacted'), hypervisor('b', 1n, 'compacted')]
    await a.service.ensureVm(storageLocking(them))
    const updates = a.runLease(them, within)
    await updates.next()
    const told = updates.next()
    const [member] = test.etcd.members
    // Both watches break, and begin again after the compaction.
    await member?.signal('SIGKILL')
    await member?.start()
    const etcd = new EtcdClient(test.etcd)
    await b.vms.migrationSwitchover({ us, them })
    await compact(etcd, them.vmName)
    etcd.close()
    expect((await told).value).toMatchObject({ status: Status.STATUS_TERMINATE })
    await updates.return()
  })
})

/** Compacts all revisions before the present one, as etcd's own tool does. */
async function compact(etcd: EtcdClient, name: string): Promise<void> {
  const { header } = await etcd.range({ key: Buffer.from(`vms/default/${name}`) })
  // CompactionRequest: its field 1 is the revision.
  const bytes = [0x08]
  for (let rest = header?.revision ?? 0n; ; rest >>= 7n) {
    bytes.push(Number(rest & 0x7fn) | (rest > 0x7fn ? 0x80 : 0))
    if (rest <= 0x7fn) break
  }
  const call = await etcd.stream('etcdserverpb.KV', 'Compact')
  await call.send(Buffer.from(bytes))
  call.end()
  for await (const _ of call.answers) break
}
