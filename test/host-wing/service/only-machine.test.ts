import { chmodSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { silentLogger } from '../../../src/base/log.ts'
import { openRegistry } from '../../../src/host/instance/registry/open-registry.ts'
import { NO_CONFIGURATION } from '../../../src/host/service/configuration.ts'
import { startDaemon } from '../../../src/host/service/daemon.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

it("a hypervisor refuses the state folder of a daemon's instances, and changes nothing there", async () => {
  const stateFolder = temporaryFolder()
  const before = await openRegistry(stateFolder)
  const row = (key: string) => ({ table: 'instances', key, payload: Buffer.from('as it was') }) as const
  await before.commit([row('web'), row('db')])
  await before.close()
  // Of tenants.
  chmodSync(stateFolder, 0o711)
  const options = {
    stateFolder,
    socket: join(stateFolder, 'hypervisor.sock'),
    configuration: NO_CONFIGURATION,
    mock: false,
    log: silentLogger(),
  }
  const only = { name: 'web', namespace: 'default', listen: undefined, prepare: async () => {} }
  await expect(startDaemon({ ...options, only })).rejects.toMatchObject({
    code: 'FAILED_PRECONDITION',
    message: `state folder ${stateFolder}: has instance db, want a folder for web alone`,
  })
  expect((statSync(stateFolder).mode & 0o777).toString(8)).toBe('711')
  const after = await openRegistry(stateFolder)
  expect([...(await after.load('instances')).keys()].sort()).toEqual(['db', 'web'])
  await after.close()
})
