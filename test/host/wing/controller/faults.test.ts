import type { ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { describe, expect, it, onTestFinished } from 'vitest'
import { RunLeaseUpdate_Status as Status } from '../../../../src/gen/vm.ts'
import { openController } from '../../../../src/host/controller/client.ts'
import { endChild } from '../../../support/processes.ts'
import { startControllerProcess } from '../../../support/wing/controller/controller-process.ts'
import { freePorts } from '../../../support/wing/controller/etcd.ts'
import { credentialsOf, startControllers } from '../../../support/wing/controller/test-controllers.ts'
import { fullLeases, hypervisor, storageLocking } from '../../../support/wing/controller/vms.ts'

const within = AbortSignal.timeout(120_000)
const test = await startControllers({ members: 3 })
const a = test.clientOf('a')
const [first, second, third] = test.etcd.members
if (first === undefined || second === undefined || third === undefined) throw new Error('no members')

describe('a controller', () => {
  it('goes on without one member of etcd', async () => {
    const us = hypervisor('a')
    await a.service.ensureVm(fullLeases(us, 30_000n))
    await a.service.renewLease({ us, nonce: Buffer.of(1) })
    await first.signal('SIGKILL')
    expect(await a.service.renewLease({ us, nonce: Buffer.of(2) })).toMatchObject({
      status: Status.STATUS_OK,
    })
    await first.start()
  })

  it('changes and grants nothing while etcd has no quorum, tells so in time, and goes on after', async () => {
    const [them, us] = [hypervisor('a', 1n, 'quorum'), hypervisor('a', 2n, 'quorum')]
    await a.service.ensureVm(fullLeases(them, 30_000n))
    const updates = a.runLease(them, within)
    await updates.next()
    const told = updates.next()
    await Promise.all([second.signal('SIGKILL'), third.signal('SIGKILL')])
    const begunMs = performance.now()
    const limits = { timeoutMs: 8000 }
    const calls = [
      a.vms.migrationSwitchover({ us, them }, limits),
      a.service.renewLease({ us: them, nonce: Buffer.of(1) }, limits),
      a.service.getVm({ namespace: 'default', name: 'quorum' }, limits),
    ]
    for (const outcome of await Promise.allSettled(calls))
      expect(outcome).toMatchObject({ status: 'rejected', reason: { code: 'UNAVAILABLE' } })
    expect(performance.now() - begunMs).toBeLessThan(15_000)
    await Promise.all([second.start(), third.start()])
    await a.vms.migrationSwitchover({ us, them })
    expect((await told).value).toMatchObject({ status: Status.STATUS_TERMINATE })
    await updates.return()
  }, 60_000)

  it('grants nothing by the word of a leader that was replaced', async () => {
    const us = hypervisor('a', 1n, 'leader')
    const { generation: epoch } = await a.service.ensureVm(fullLeases(us, 30_000n))
    await a.service.renewLease({ us, nonce: Buffer.of(1) })
    // Each member in turn stands still, so that one of them is the leader, and answers late.
    for (const member of [first, second, third]) {
      await member.signal('SIGSTOP')
      const granted = await a.service.renewLease({ us, nonce: Buffer.of(2) })
      await member.signal('SIGCONT')
      expect(granted).toMatchObject({ status: Status.STATUS_OK, epoch })
    }
  }, 60_000)
})

describe('./microvm controller', () => {
  it('loses no switchover when it is killed in the middle, and ends with SIGTERM', async () => {
    const [port = 0, metrics = 0] = await freePorts(2)
    const listen = { host: '127.0.0.1', port }
    const plan = { ...test, etcd: test.etcd.endpoints, listen, metrics: { host: '127.0.0.1', port: metrics } }
    // A signal right after the start finds the watch on its way to etcd.
    const short = await startControllerProcess(plan)
    await endChild(short)
    expect(short.exitCode).toBe(0)
    let controller: ChildProcess = await startControllerProcess(plan)
    const credentials = credentialsOf(test.authority, 'a')
    const client = openController({ endpoints: [listen], credentials })
    onTestFinished(async () => {
      client.close()
      await endChild(controller, 'SIGKILL')
    })
    const { generation } = await client.service.ensureVm(storageLocking(hypervisor('a', 1n, 'killed')))
    // A chain of switchovers, of which one is on its way when the process ends.
    const moves = (async () => {
      for (let run = 2n; run <= 60n; run++)
        await client.vms.migrationSwitchover(
          { us: hypervisor('a', run, 'killed'), them: hypervisor('a', run - 1n, 'killed') },
          { timeoutMs: 30_000 },
        )
    })()
    await endChild(controller, 'SIGKILL')
    controller = await startControllerProcess(plan)
    await moves
    expect(await client.service.getVm({ namespace: 'default', name: 'killed' })).toMatchObject({
      generation: generation + 59n,
    })
    const text = await (await fetch(`http://127.0.0.1:${metrics}/metrics`)).text()
    expect(text).toMatch(
      /^microvm_controller_calls_total\{method="metropolis.proto.vm.VMController\/MigrationSwitchover",code="OK"\} \d+$/m,
    )
    const ended = once(controller, 'exit')
    controller.kill('SIGTERM')
    expect(await ended).toEqual([0, null])
  }, 60_000)
})
