import { readdirSync } from 'node:fs'
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
import type { Instances } from '../../../../src/host/instance/instances.ts'
import type { LeaseController } from '../../../../src/host/instance/leases/machine-lease.ts'
import { memoryRegistry } from '../../../../src/host/instance/registry/memory-registry.ts'
import type { Registry } from '../../../../src/host/instance/registry/registry.ts'
import { processState } from '../../../support/processes.ts'
import { temporaryFolder } from '../../../support/temporary-folder.ts'
import { credentialsOf, startControllers } from '../../../support/wing/controller/test-controllers.ts'
import { lifePlan, openReal } from '../../../support/wing/real-wing.ts'
import { ADMIN } from '../../../support/wing/requests.ts'

const TTL_MS = 3000
const test = await startControllers({ controllers: 1 })
const [a, b] = [test.clientOf('a', 0), test.clientOf('b', 0)]

/** A host, as others and the controllers know it. */
function hostOf(
  id: 'a' | 'b',
  folder: string,
  {
    reached = () => {},
    registry = memoryRegistry(),
    fenceVolume,
  }: {
    readonly reached?: () => void
    readonly registry?: Registry
    readonly fenceVolume: LeaseController['fenceVolume']
  },
) {
  const client = id === 'a' ? a : b
  const controller: LeaseController = {
    ensureVm: async (request, signal) => await client.service.ensureVm(request, { signal }),
    removeVm: async (us) => void (await client.service.removeVm({ us })),
    renewLease: async (request, signal) => {
      reached()
      return await client.service.renewLease(request, { signal })
    },
    getVm: (request) => client.service.getVm(request),
    fenceVolume,
    runLease: (us, signal) => client.runLease(us, signal),
  }
  let runs = BigInt(Date.now())
  const { files: identity } = credentialsOf(test.authority, id)
  const volumes = {
    address: '127.0.0.1',
    listen: '127.0.0.1',
    identity,
    folders: { [join(folder, 'disks')]: ['b'] },
  }
  const leases = { id, controller, volumes, nextRunId: async () => runs++ }
  return openReal(join(folder, id), registry, { leases })
}

it('a machine whose host is cut off has ended before another host gets it, with its disk', async () => {
  let isCutOff = false
  const reached = () => {
    if (isCutOff) throw new AgentError('UNAVAILABLE', 'cut off')
  }
  const folder = temporaryFolder()
  const path = join(folder, 'disks', 'root')
  const { request } = lifePlan(join(folder, 'disks'))
  const fenceVolume: LeaseController['fenceVolume'] = async (_, wanted, signal) =>
    await first.move.fenceVolume(wanted, 'b', signal)
  const registry = memoryRegistry()
  let first = await hostOf('a', folder, { reached, registry, fenceVolume })
  const other = await hostOf('b', folder, { fenceVolume })
  const ensure = (instances: Instances, host: string) => {
    const lease = { mode: LeaseMode.LM_FULL_LEASES, ttlMs: TTL_MS }
    const { specification } = request
    const file = Backend.fromPartial({ file: { path, access: File_Access.READ_WRITE, host } })
    return instances.ensure(
      {
        properties: { key: 'web', tenant: '', labels: {}, lease },
        specification: specification && { ...specification, backends: { 'root-file': file } },
      },
      ADMIN,
    )
  }
  const run = (instances: Instances) =>
    instances.changeState({ key: 'web', change: Change.RUN, graceMs: 0 }, ADMIN)
  try {
    await ensure(first, '')
    const { qemuPid } = await run(first)
    await sleep(TTL_MS * 1.5)
    expect(processState(qemuPid)?.state).toMatch(/[RS]/)
    await expect(ensure(other, 'a')).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
      message: 'vm default/web: the lease of another hypervisor may not have ended, want it ended',
    })
    isCutOff = true
    const late = AbortSignal.timeout(30_000)
    for (let isTaken = false; !isTaken; ) {
      late.throwIfAborted()
      isTaken = await ensure(other, 'a').then(
        () => true,
        (error) => {
          expect(error).toMatchObject({ code: 'FAILED_PRECONDITION' })
          return false
        },
      )
    }
    expect(['Z', undefined]).toContain(processState(qemuPid)?.state)
    await expect.poll(async () => (await first.get('web', ADMIN)).state).toBe(State.TERMINATED)
    expect((await first.get('web', ADMIN)).reason).toBe('the lease has ended')
    expect((await run(other)).state).toBe(State.RUNNING)
    // Its host has the file, and may not run the machine now.
    await expect(run(first)).rejects.toMatchObject({ code: 'FAILED_PRECONDITION' })
    expect((await other.get('web', ADMIN)).state).toBe(State.RUNNING)
  } finally {
    for (const instances of [other, first]) {
      await instances.remove('web', ADMIN).catch(() => {})
      await instances.close()
    }
    // The next daemon of the host with the file finds that there is no machine any more.
    first = await hostOf('a', folder, { registry, fenceVolume })
    await expect.poll(() => readdirSync(join(folder, 'a', 'volumes'))).toEqual([])
    await first.close()
  }
})
