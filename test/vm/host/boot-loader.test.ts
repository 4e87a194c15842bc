import { copyFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { Board_Firmware, Instance, Specification } from '../../../src/gen/microvm/instance/v1/instance.ts'
import { LeaseMode, VMSpec_StartMode } from '../../../src/gen/vm.ts'
import { instanceJson } from '../../../src/microvm/machines/command.ts'
import { LOADER_SAYS, loaderDisk } from '../../support/loader/loader-disk.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import { cannotBoot, progress } from '../../support/vm/boot-guest.ts'
import {
  type HypervisorProcess,
  startHypervisor,
  untilPrinted,
} from '../../support/wing/hypervisor-process.ts'
import { file } from '../../support/wing/requests.ts'

/** An emulated guest boots by UEFI in some 15 s. */
const TIMEOUT_MS = 180_000

describe.skipIf(cannotBoot() !== undefined)('a disk with a boot loader', { timeout: TIMEOUT_MS }, () => {
  const folder = temporaryFolder()
  const disk = join(folder, 'disk.img')
  const started: HypervisorProcess[] = []

  beforeAll(async () => copyFileSync(await loaderDisk(progress), disk), TIMEOUT_MS)

  afterAll(async () => {
    for (const { process, ended } of started) {
      process.kill('SIGKILL')
      await ended
    }
  })

  async function start(state: string, firmware: Board_Firmware): Promise<HypervisorProcess> {
    const machine = join(folder, 'web.json')
    const specification = Specification.fromPartial({
      board: { machine: 'pc-q35-7.2', memoryMib: 512n, cpus: 1, firmware },
      devices: {
        root: { backend: 'root-file', slot: 3, disk: { serial: 'root' } },
        console: { backend: 'output', serial: {} },
      },
      backends: { 'root-file': file(disk), output: { console: {} } },
    })
    writeFileSync(machine, JSON.stringify(instanceJson(Instance.fromPartial({ specification }))))
    const mode = VMSpec_StartMode.SM_RUN
    const spec = { name: 'web', mode, leaseMode: LeaseMode.LM_STORAGE_LOCKING }
    const hypervisor = startHypervisor(spec, {
      words: ['--machine', machine, '--state', state, '--grace', '1'],
    })
    started.push(hypervisor)
    await hypervisor.until('the machine runs')
    return hypervisor
  }

  /** Waits for the agent, which the loader has started. */
  async function bootAndEnd(state: string, { process, ended }: HypervisorProcess): Promise<void> {
    expect(await untilPrinted(state, '"booted"')).toContain(LOADER_SAYS)
    process.kill('SIGTERM')
    expect(await ended).toBe(0)
  }

  it('boots by BIOS', async () => {
    const state = join(folder, 'bios')
    await bootAndEnd(state, await start(state, Board_Firmware.BIOS))
  })

  it('boots by the entry that its first boot has written into the variables of UEFI', async () => {
    const state = join(folder, 'uefi')
    const writing = await start(state, Board_Firmware.UEFI)
    expect(await writing.ended).toBe(0)
    await bootAndEnd(state, await start(state, Board_Firmware.UEFI))
  })
})
