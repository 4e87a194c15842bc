import { afterAll, describe, expect, it } from 'vitest'
import { LeaseMode } from '../../../../src/gen/vm.ts'
import { EtcdClient } from '../../../../src/host/controller/store/etcd-client.ts'
import { put, remove, runKey, vmKey } from '../../../../src/host/controller/store/keys.ts'
import { MOST_OF_HOST } from '../../../../src/host/controller/vms.ts'
import { startControllers } from '../../../support/wing/controller/test-controllers.ts'
import { hypervisor, storageLocking } from '../../../support/wing/controller/vms.ts'

const test = await startControllers({ controllers: 2 })
// Each side has a controller of its own.
const [a, b] = [test.clientOf('a', 0), test.clientOf('b', 1)]
const etcd = new EtcdClient(test.etcd)
afterAll(() => etcd.close())
const get = (name: string) => a.service.getVm({ namespace: 'default', name })

describe('MigrationSwitchover', () => {
  it('moves a VM and its volumes to the hypervisor that asks', async () => {
    const [them, us] = [hypervisor('a'), hypervisor('b')]
    const volumes = (host: string, epoch = 0n) => [{ key: 'root', host, path: `/srv/${host}/root`, epoch }]
    const first = await a.service.ensureVm({ ...storageLocking(them), volumes: volumes('a') })
    expect(first.volumes).toEqual(volumes('a', first.generation))
    await b.vms.migrationSwitchover({ us, them, volumes: volumes('b') })
    const generation = first.generation + 1n
    const moved = { authoritative: us, generation, volumes: volumes('b', generation) }
    expect(await get('web')).toMatchObject(moved)
    const fields = { kind: 'switchover', hypervisor: 'b/i-web (run 1)', from: 'a/i-web (run 1)' }
    expect(test.lines).toContainEqual({ message: 'vm', fields: expect.objectContaining(fields) })
  })

  it('changes nothing for a hypervisor that does not run the VM any more', async () => {
    const [first, second, third] = [1n, 2n, 3n].map((run) => hypervisor('a', run, 'stale'))
    await a.service.ensureVm(storageLocking(first ?? hypervisor('a')))
    await a.vms.migrationSwitchover({ us: second, them: first })
    const before = await get('stale')
    await expect(a.vms.migrationSwitchover({ us: third, them: first })).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
      message: expect.stringContaining('a/i-stale (run 2) runs it, not a/i-stale (run 1)'),
    })
    expect(await get('stale')).toEqual(before)
  })

  it('answers a second time as the first has, without a second change', async () => {
    const [them, us] = [hypervisor('a', 1n, 'twice'), hypervisor('b', 1n, 'twice')]
    const { generation } = await a.service.ensureVm(storageLocking(them))
    await b.vms.migrationSwitchover({ us, them })
    // The client finds that `us` runs the VM already: the answer of the first call may have been lost.
    await b.vms.migrationSwitchover({ us, them })
    expect(await get('twice')).toMatchObject({ authoritative: us, generation: generation + 1n })
  })

  it('lets one of both sides win that ask at once', async () => {
    for (let round = 0; round < 10; round++) {
      const name = `race${round}`
      const [source, retaken, target] = [
        hypervisor('a', 1n, name),
        hypervisor('a', 2n, name),
        hypervisor('b', 1n, name),
      ]
      const before = await a.service.ensureVm(storageLocking(source))
      const outcomes = await Promise.allSettled([
        a.vms.migrationSwitchover({ us: retaken, them: source }),
        b.vms.migrationSwitchover({ us: target, them: source }),
      ])
      const { authoritative, generation } = await get(name)
      expect(generation).toBe(before.generation + 1n)
      expect(outcomes.map(({ status }) => status)).toEqual(
        authoritative?.podName === `a/i-race${round}` ? ['fulfilled', 'rejected'] : ['rejected', 'fulfilled'],
      )
    }
  })

  it('wants a greater run id of the same hypervisor', async () => {
    const them = hypervisor('a', 5n, 'runs')
    await a.service.ensureVm(storageLocking(them))
    for (const run of [4n, 5n])
      await expect(a.vms.migrationSwitchover({ us: { ...them, runId: run }, them })).rejects.toMatchObject({
        code: 'INVALID_ARGUMENT',
        message: `us.run_id: ${run}, want more than that of them, 5`,
      })
    for (const run of [0n, 2n ** 63n])
      await expect(a.vms.migrationSwitchover({ us: { ...them, runId: run }, them })).rejects.toMatchObject({
        code: 'INVALID_ARGUMENT',
        message: `us.run_id: ${run}, want 1 to ${2n ** 63n - 1n}`,
      })
    // A clock that was wrong once must not keep a host from running its VMs.
    const future = { ...them, runId: 2n ** 62n }
    await a.vms.migrationSwitchover({ us: future, them })
    expect(await get('runs')).toMatchObject({ authoritative: future })
  })

  it('refuses another VM', async () => {
    const request = { us: hypervisor('a', 1n, 'one'), them: hypervisor('a', 1n, 'two') }
    await expect(a.vms.migrationSwitchover(request)).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' })
  })
})

describe('ControllerService', () => {
  it('gives a VM to the first hypervisor, and to later runs of it', async () => {
    const [us, later, other] = [
      hypervisor('a', 1n, 'mine'),
      hypervisor('a', 2n, 'mine'),
      hypervisor('b', 9n, 'mine'),
    ]
    const first = await a.service.ensureVm(storageLocking(us))
    expect(first).toMatchObject({ authoritative: us })
    expect(await a.service.ensureVm(storageLocking(us))).toEqual(first)
    await expect(b.service.ensureVm(storageLocking(other))).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
    })
    expect(await a.service.ensureVm(storageLocking(later))).toMatchObject({
      authoritative: later,
      generation: first.generation + 1n,
    })
    await expect(a.service.ensureVm(storageLocking(us))).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
    })
  })

  it('removes a VM for its hypervisor alone, and counts on when it is made anew', async () => {
    const [us, other] = [hypervisor('a', 1n, 'gone'), hypervisor('b', 1n, 'gone')]
    const { generation } = await a.service.ensureVm(storageLocking(us))
    await expect(b.service.removeVm({ us: other })).rejects.toMatchObject({ code: 'FAILED_PRECONDITION' })
    await a.service.removeVm({ us })
    await a.service.removeVm({ us })
    await expect(get('gone')).rejects.toMatchObject({
      code: 'NOT_FOUND',
      message: 'vm default/gone: not there',
    })
    const again = await b.service.ensureVm(storageLocking(other))
    expect(again.generation).toBeGreaterThan(generation)
  })

  it('counts on also when etcd has forgotten the VM', async () => {
    const us = hypervisor('a', 1n, 'forgotten')
    let generation = 0n
    for (let run = 1n; run <= 3n; run++)
      generation = (await a.service.ensureVm(storageLocking({ ...us, runId: run }))).generation
    await a.service.removeVm({ us: { ...us, runId: 3n } })
    // As the end of the lease of a record that was removed does.
    await etcd.txn({ success: [remove(vmKey({ namespace: 'default', name: 'forgotten' }))] })
    expect((await a.service.ensureVm(storageLocking(us))).generation).toBeGreaterThan(generation)
  })

  it('bounds the VMs of a host', async () => {
    const full = test.clientOf('c', 0)
    const first = hypervisor('c', 1n, 'first')
    await full.service.ensureVm(storageLocking(first))
    const others = Array.from({ length: Number(MOST_OF_HOST) - 1 }, (_, index) => `${index}`)
    for (let from = 0; from < others.length; from += 100)
      await etcd.txn({
        success: others
          .slice(from, from + 100)
          .map((name) => put(runKey('c', { namespace: 'default', name }), new Uint8Array(0))),
      })
    await expect(full.service.ensureVm(storageLocking(hypervisor('c', 1n, 'another')))).rejects.toMatchObject(
      { code: 'RESOURCE_EXHAUSTED', message: `host c: runs ${MOST_OF_HOST} VMs, want no more` },
    )
    await full.service.ensureVm(storageLocking({ ...first, runId: 2n }))
    await full.service.removeVm({ us: { ...first, runId: 2n } })
    await full.service.ensureVm(storageLocking(hypervisor('c', 1n, 'another')))
  })

  it('lists VMs in pages, without their specifications', async () => {
    const names = ['p1', 'p2', 'p3']
    for (const vmName of names) {
      const us = { ...hypervisor('a', 1n, vmName), namespace: 'pages' }
      const request = storageLocking(us)
      await a.service.ensureVm({
        ...request,
        settings: { ...request.settings, specification: { board: { cpus: 2 } } },
      })
    }
    const first = await a.service.listVms({ namespace: 'pages', pageSize: 2 })
    const second = await a.service.listVms({
      namespace: 'pages',
      pageSize: 2,
      pageToken: first.nextPageToken,
    })
    expect([...first.vms, ...second.vms].map(({ name }) => name)).toEqual(names)
    expect([first.vms[0]?.settings?.specification, second.nextPageToken]).toEqual([undefined, ''])
  })

  it.each([
    ['settings.lease_mode: 0, want LM_STORAGE_LOCKING or LM_FULL_LEASES', { settings: {} }],
    ['us.vm_name: "", want the key of an instance', { us: { vmName: '' } }],
    ['us.namespace: "A/b", want 1 to 63 of a-z, 0-9, _ . -, such as default', { us: { namespace: 'A/b' } }],
    ['us.pod_name: "a", want HOST/INSTANCE', { us: { podName: 'a' } }],
    [
      'volumes.path: "../x", want an absolute path without . and ..',
      { volumes: [{ key: 'root', path: '../x' }] },
    ],
    [
      /^vm: \d+ bytes, want at most 65536$/,
      {
        settings: {
          leaseMode: LeaseMode.LM_STORAGE_LOCKING,
          specification: { board: { commandLine: 'x'.repeat(2 ** 20) } },
        },
      },
    ],
  ])('refuses %s', async (message, wrong) => {
    const right = storageLocking(hypervisor('a', 1n, 'wrong'))
    const request = { ...right, ...wrong, us: { ...right.us, ...('us' in wrong ? wrong.us : {}) } }
    await expect(a.service.ensureVm(request)).rejects.toMatchObject({
      code: 'INVALID_ARGUMENT',
      message: typeof message === 'string' ? message : expect.stringMatching(message),
    })
  })
})
