import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { silentLogger } from '../../../../src/base/log.ts'
import {
  Backend,
  ChangeStateRequest_Change as Change,
  File_Access,
  State,
} from '../../../../src/gen/microvm/instance/v1/instance.ts'
import { LeaseMode } from '../../../../src/gen/vm.ts'
import { UIDS } from '../../../../src/host/instance/machine/uids.ts'
import { startDaemon } from '../../../../src/host/service/daemon.ts'
import type { HostSettings } from '../../../../src/host/service/hosts/host-settings.ts'
import { temporaryFolder } from '../../../support/temporary-folder.ts'
import { startControllers } from '../../../support/wing/controller/test-controllers.ts'
import { hostOf } from '../../../support/wing/moves/host-certificates.ts'
import { lifePlan } from '../../../support/wing/real-wing.ts'
import { ADMIN } from '../../../support/wing/requests.ts'

const test = await startControllers({ controllers: 1 })

it('a machine of one host writes to a disk that another one has, while its daemon lives and after', async () => {
  const folder = temporaryFolder()
  const disks = join(folder, 'disks')
  const { request } = lifePlan(disks)
  const start = (id: string, volumes: HostSettings['volumes']) => {
    const host = { ...hostOf(test.authority, id), controllers: test.endpoints, volumes }
    const configuration = { tenants: [], uids: UIDS, host }
    return startDaemon({
      ...{ stateFolder: join(folder, id), configuration, mock: false, acceleration: 'tcg' },
      log: silentLogger(),
    })
  }
  const ensure = () => {
    const { specification } = request
    const file = { path: join(disks, 'root'), access: File_Access.READ_WRITE, host: 'a' }
    const backends = { 'root-file': Backend.fromPartial({ file }) }
    const lease = { mode: LeaseMode.LM_FULL_LEASES, ttlMs: 5000 }
    return machines.instances.ensure(
      {
        properties: { key: 'web', tenant: '', labels: {}, lease },
        specification: specification && { ...specification, backends },
      },
      ADMIN,
    )
  }
  let storage = await start('a', {})
  const machines = await start('b', {})
  try {
    await expect.poll(async () => (await machines.instances.move.hosts()).length, { timeout: 10_000 }).toBe(2)
    await expect(ensure()).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
      message: expect.stringContaining('not below a folder of host.volumes in the configuration of host a'),
    })
    await storage.close()
    storage = await start('a', { [disks]: ['b'] })
    await expect
      .poll(async () => (await ensure().catch((error) => error)).state, { timeout: 20_000 })
      .toBe(State.PAUSED)
    const run = { key: 'web', change: Change.RUN, graceMs: 0 }
    expect((await machines.instances.changeState(run, ADMIN)).state).toBe(State.RUNNING)
    await storage.close()
    const stop = { key: 'web', change: Change.KILL, graceMs: 0 }
    await machines.instances.changeState(stop, ADMIN)
    await machines.instances.remove('web', ADMIN)
    storage = await start('a', { [disks]: ['b'] })
    await expect.poll(() => readdirSync(join(folder, 'a', 'volumes')), { timeout: 10_000 }).toEqual([])
  } finally {
    await machines.instances.remove('web', ADMIN).catch(() => {})
    await machines.close()
    await storage.close()
  }
}, 60_000)
