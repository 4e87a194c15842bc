import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, describe, expect, it } from 'vitest'
import {
  ChangeStateRequest_Change as Change,
  Specification,
  State,
} from '../../../../src/gen/microvm/instance/v1/instance.ts'
import type { Instances } from '../../../../src/host/instance/instances.ts'
import { memoryRegistry } from '../../../../src/host/instance/registry/memory-registry.ts'
import { processesIn } from '../../../support/processes.ts'
import { temporaryFolder } from '../../../support/temporary-folder.ts'
import { daemonsIn, leftovers } from '../../../support/wing/leftovers.ts'
import { LIFE } from '../../../support/wing/lives/life.ts'
import { makeMachine } from '../../../support/wing/made-machine.ts'
import { addPasstStandIn, lifePlan, openReal } from '../../../support/wing/real-wing.ts'
import { ADMIN } from '../../../support/wing/requests.ts'

const NAMES = Object.keys(LIFE)
/** Those for which a holder runs already. */
const LATER = NAMES.filter((name) => name !== 'ensure' && name !== 'start')

describe('a holder that is killed', () => {
  it.each(LATER)('before and during `%s` leaves nothing, and its instance can start anew', async (last) => {
    for (const when of ['before', 'during'] as const) {
      const folder = temporaryFolder()
      const plan = lifePlan(join(folder, 'disks'))
      const instances = await openReal(folder, memoryRegistry())
      for (const name of NAMES.slice(0, NAMES.indexOf(last))) await LIFE[name]?.(instances, plan)
      const pid = await holderOf(instances)
      if (when === 'before') kill(pid)
      const call = LIFE[last]?.(instances, plan)
      if (when === 'during') kill(pid)
      await call?.catch(() => {})
      if (instances.list(ADMIN).length > 0) {
        await expect.poll(async () => (await instances.get('web', ADMIN)).state).toBe(State.STOPPED)
        await LIFE.run?.(instances, plan)
        await LIFE.remove?.(instances, plan)
      }
      await instances.close()
      expect(leftovers(folder), when).toEqual([])
    }
  })
})

describe('a holder that is killed beside daemons of devices and a QEMU that hangs', () => {
  const key = 'web'
  let undo = () => {}

  afterEach(() => undo())

  it('takes all of them along, and the instance can start anew', async () => {
    undo = addPasstStandIn(join(temporaryFolder(), 'bin'))
    const made = await makeMachine(withDaemons)
    const { instances } = made
    await instances.changeState({ key, change: Change.RUN, graceMs: 0 }, ADMIN)
    expect(daemonsIn(made.folder)).toEqual(['passt', 'virtiofsd', 'vsock'])
    const { holderPid, qemuPid } = await made.get()
    const pids = processesIn(made.folder).map(({ pid }) => pid)
    expect(pids).toEqual(expect.arrayContaining([holderPid, qemuPid]))
    // With QEMU and the holder itself; virtiofsd may be more than one.
    expect(pids.length).toBeGreaterThanOrEqual(5)
    process.kill(qemuPid, 'SIGSTOP')
    const hung = instances.changeState({ key, change: Change.PAUSE, graceMs: 0 }, ADMIN)
    kill(holderPid)
    await expect(hung).rejects.toMatchObject({ code: expect.any(String) })
    await expect.poll(async () => (await made.get()).state, SOON).toBe(State.STOPPED)
    await expect.poll(() => processesIn(made.folder), SOON).toEqual([])
    await instances.changeState({ key, change: Change.RUN, graceMs: 0 }, ADMIN)
    expect(daemonsIn(made.folder)).toEqual(['passt', 'virtiofsd', 'vsock'])
    expect(await made.remove()).toEqual([])
  })
})

/** The kernel ends them one after the other. */
const SOON = { timeout: 20_000 }

function withDaemons({ board, devices, backends }: Specification, disks: string): Specification {
  const path = join(disks, 'shared')
  mkdirSync(path)
  const nic = { mac: '52:54:00:00:00:09' }
  return Specification.fromPartial({
    board,
    devices: {
      ...devices,
      share: { backend: 'folder', port: 'port', share: { tag: 'shared' } },
      card: { backend: 'net', slot: 7, nic },
      vsock: { backend: 'link', port: 'second', vsock: {} },
      second: { slot: 9, rootPort: {} },
    },
    backends: {
      ...backends,
      folder: { virtiofsd: { path } },
      net: { passt: {} },
      link: { vsockDaemon: {} },
    },
  })
}

async function holderOf(instances: Instances): Promise<number> {
  return (await instances.get('web', ADMIN)).holderPid
}

function kill(pid: number): void {
  process.kill(pid, 'SIGKILL')
}
