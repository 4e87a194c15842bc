import { describe, expect, it } from 'vitest'
import { RunLeaseUpdate_Status as Status } from '../../../../src/gen/vm.ts'
import { EtcdClient } from '../../../../src/host/controller/store/etcd-client.ts'
import { put } from '../../../../src/host/controller/store/keys.ts'
import { startControllers } from '../../../support/wing/controller/test-controllers.ts'
import { fullLeases, hypervisor } from '../../../support/wing/controller/vms.ts'

const test = await startControllers({ words: ['--quota-backend-bytes', `${2 ** 22}`] })
const a = test.clientOf('a')

describe('a controller whose etcd is full', () => {
  it('refuses changes by name, and still renews leases', async () => {
    const us = hypervisor('a')
    await a.service.ensureVm(fullLeases(us, 30_000n))
    await a.service.renewLease({ us, nonce: Buffer.of(1) })
    const etcd = new EtcdClient(test.etcd)
    const fill = async () => {
      for (;;) await etcd.txn({ success: [put(Buffer.from('filler'), Buffer.alloc(2 ** 20))] })
    }
    await expect(fill()).rejects.toMatchObject({ code: 'RESOURCE_EXHAUSTED' })
    etcd.close()
    await expect(a.service.ensureVm(fullLeases(hypervisor('a', 1n, 'other'), 30_000n))).rejects.toMatchObject(
      {
        code: 'RESOURCE_EXHAUSTED',
        message:
          'etcd: mvcc: database space exceeded, want it compacted, defragmented and its alarm disarmed',
      },
    )
    expect(await a.service.renewLease({ us, nonce: Buffer.of(2) })).toMatchObject({
      status: Status.STATUS_OK,
    })
    expect(await a.service.getVm({ namespace: 'default', name: 'web' })).toMatchObject({ authoritative: us })
  })
})
