import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { Readable } from 'node:stream'
import { describe, expect, it } from 'vitest'
import {
  Backend,
  Board_Firmware,
  ChangeStateRequest_Change as Change,
  Device,
} from '../../../../src/gen/microvm/instance/v1/instance.ts'
import { memoryRegistry } from '../../../../src/host/instance/registry/memory-registry.ts'
import { temporaryFolder } from '../../../support/temporary-folder.ts'
import { BOOTED, bootDisk } from '../../../support/wing/boot-disk.ts'
import { image, openReal } from '../../../support/wing/real-wing.ts'
import { ADMIN, ensureRequest, file } from '../../../support/wing/requests.ts'

describe('a machine without a kernel', () => {
  it('boots the disk of the lowest slot', async () => {
    const folder = temporaryFolder()
    mkdirSync(join(folder, 'disks'))
    const root = join(folder, 'disks/root')
    writeFileSync(root, bootDisk(2 ** 20))
    const instances = await openReal(folder, memoryRegistry())
    const request = ensureRequest('web', {
      specification: {
        board: { kernel: '' },
        devices: {
          root: Device.fromPartial({ backend: 'root-file', slot: 5, disk: { serial: 'root' } }),
          // Not bootable, and earlier by its key.
          data: Device.fromPartial({ backend: 'data-file', slot: 6, disk: { serial: 'data' } }),
          console: Device.fromPartial({ backend: 'output', serial: {} }),
        },
        backends: {
          'root-file': file(root),
          'data-file': file(image(join(folder, 'disks'), 'data', 1)),
          output: Backend.fromPartial({ console: {} }),
        },
      },
    })
    await instances.ensure(request, ADMIN)
    await instances.changeState({ key: 'web', change: Change.RUN, graceMs: 0 }, ADMIN)
    let text = ''
    for await (const data of instances.console('web', Readable.from(endless()), ADMIN)) {
      text += Buffer.from(data).toString('latin1')
      if (text.includes(BOOTED)) break
    }
    await instances.remove('web', ADMIN)
    await instances.close()
    expect(text).toContain(BOOTED)
  })

  it('keeps what UEFI has written until it is removed', async () => {
    const folder = temporaryFolder()
    const instances = await openReal(folder, memoryRegistry())
    const request = ensureRequest('web', {
      specification: {
        board: { kernel: '', firmware: Board_Firmware.UEFI },
        backends: { 'root-file': file(image(folder, 'root', 1)) },
      },
    })
    const run = { key: 'web', change: Change.RUN, graceMs: 0 }
    await instances.ensure(request, ADMIN)
    const [own = ''] = readdirSync(join(folder, 'instances'))
    const variables = join(folder, 'instances', own, 'uefi-variables.fd')
    const before = readFileSync(variables)
    await instances.changeState(run, ADMIN)
    await expect.poll(() => readFileSync(variables).equals(before), { timeout: 60_000 }).toBe(false)
    await instances.changeState({ ...run, change: Change.KILL }, ADMIN)
    const written = readFileSync(variables)
    await instances.changeState(run, ADMIN)
    const now = readFileSync(variables)
    // The copy that it began as has all of the store erased.
    expect(written.some((byte, at) => byte !== before[at] && now[at] === byte)).toBe(true)
    await instances.remove('web', ADMIN)
    await instances.close()
    expect(existsSync(variables)).toBe(false)
  })
})

async function* endless(): AsyncGenerator<Uint8Array> {
  await new Promise(() => {})
  yield Buffer.alloc(0)
}
