import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { expect, it } from 'vitest'
import { AgentError } from '../../../../src/base/errors.ts'
import {
  Backend,
  ChangeStateRequest_Change as Change,
  File_Access,
  State,
} from '../../../../src/gen/microvm/instance/v1/instance.ts'
import { LeaseMode } from '../../../../src/gen/vm.ts'
import type { LeaseController } from '../../../../src/host/instance/leases/machine-lease.ts'
import { memoryRegistry } from '../../../../src/host/instance/registry/memory-registry.ts'
import { processState } from '../../../support/processes.ts'
import { temporaryFolder } from '../../../support/temporary-folder.ts'
import { startControllers } from '../../../support/wing/controller/test-controllers.ts'
import { hypervisor } from '../../../support/wing/controller/vms.ts'
import { lifePlan, openReal } from '../../../support/wing/real-wing.ts'
import { ADMIN } from '../../../support/wing/requests.ts'

const TTL_MS = 3000
const test = await startControllers({ controllers: 1 })
const [a, b] = [test.clientOf('a', 0), test.clientOf('b', 0)]

it('a machine whose host is cut off has ended before another host gets it from a controller with etcd', async () => {
  let isCutOff = false
  const reached = () => {
    if (isCutOff) throw new AgentError('UNAVAILABLE', 'cut off')
  }
  const controller: LeaseController = {
    ensureVm: async (request, signal) => await a.service.ensureVm(request, { signal }),
    removeVm: async (us) => void (await a.service.removeVm({ us })),
    renewLease: async (request, signal) => {
      reached()
      return await a.service.renewLease(request, { signal })
    },
    runLease: (us, signal) => a.runLease(us, signal),
  }
  const folder = temporaryFolder()
  const { request } = lifePlan(join(folder, 'disks'))
  const file = Backend.fromPartial({
    file: { path: join(folder, 'disks', 'root'), access: File_Access.SCRATCH },
  })
  let runs = 1n
  const leases = { id: 'a', controller, nextRunId: async () => runs++ }
  const instances = await openReal(folder, memoryRegistry(), { leases })
  try {
    const lease = { mode: LeaseMode.LM_FULL_LEASES, ttlMs: TTL_MS }
    const { specification } = request
    await instances.ensure(
      {
        properties: { key: 'web', tenant: '', labels: {}, lease },
        specification: specification && { ...specification, backends: { 'root-file': file } },
      },
      ADMIN,
    )
    const { qemuPid } = await instances.changeState({ key: 'web', change: Change.RUN, graceMs: 0 }, ADMIN)
    await sleep(TTL_MS * 1.5)
    expect(processState(qemuPid)?.state).toMatch(/[RS]/)
    isCutOff = true
    const { authoritative: them } = await b.service.getVm({ namespace: 'default', name: 'web' })
    const us = hypervisor('b')
    const late = AbortSignal.timeout(20_000)
    const taken = () =>
      b.vms.migrationSwitchover({ us, them }).then(
        () => true,
        () => false,
      )
    while (!(await taken())) late.throwIfAborted()
    expect(['Z', undefined]).toContain(processState(qemuPid)?.state)
    await expect.poll(async () => (await instances.get('web', ADMIN)).state).toBe(State.TERMINATED)
    expect((await instances.get('web', ADMIN)).reason).toBe('the lease has ended')
  } finally {
    await instances.remove('web', ADMIN)
    await instances.close()
  }
})
