import { setImmediate as turn } from 'node:timers/promises'
import { beforeEach, describe, expect, it } from 'vitest'
import { silentLogger } from '../../../src/base/log.ts'
import { onlineMemory, probeMemory } from '../../../src/handlers/guest/memory-blocks.ts'
import { watchMemory } from '../../../src/handlers/guest/memory-watch.ts'
import { kernelError } from '../../../src/os/errors.ts'
import { FakeOs } from '../../support/fakes/fake-os.ts'
import { FakeSysfs } from '../../support/handlers/guest/fake-sysfs.ts'

const MEMORY = '/sys/devices/system/memory'

let os: FakeOs
let sysfs: FakeSysfs

beforeEach(async () => {
  os = new FakeOs()
  sysfs = await FakeSysfs.of(os, 1)
})

describe('onlineMemory', () => {
  it('brings every offline block online, and writes to no other', async () => {
    await os.files.put(`${MEMORY}/memory0/online`, '1\n')
    for (const block of [32, 33]) await sysfs.plugMemory(block)
    await onlineMemory(os.files)
    expect(sysfs.written).toEqual([`${MEMORY}/memory32/online`, `${MEMORY}/memory33/online`])
  })

  it('does nothing when memory has no blocks', async () => {
    await onlineMemory(os.files)
    expect(sysfs.written).toEqual([])
  })

  it('tries every block, then names those that stay offline', async () => {
    for (const block of [32, 33, 34]) await sysfs.plugMemory(block)
    sysfs.refusals.set(`${MEMORY}/memory32/online`, 'EINVAL')
    await expect(onlineMemory(os.files)).rejects.toMatchObject({
      code: 'INTERNAL',
      message: `memory not brought online: write ${MEMORY}/memory32/online: EINVAL`,
    })
    expect([await sysfs.memoryOnline(33), await sysfs.memoryOnline(34)]).toEqual(['1', '1'])
  })
})

describe('watchMemory', () => {
  const nothing = async () => {}

  it('reports memory that came online or went offline, in the order of the events', async () => {
    const seen: string[] = []
    await sysfs.plugMemory(3)
    sysfs.refusals.set(`${MEMORY}/memory3/online`, 'EINVAL')
    watchMemory(os, silentLogger(), async () => void seen.push(await sysfs.memoryOnline(3)))
    await turn()
    sysfs.refusals.clear()
    for (const action of ['add', 'offline'])
      sysfs.announce(action, '/devices/system/memory/memory3', 'memory')
    await turn()
    expect(seen).toEqual(['0', '1', '1'])
  })

  it('brings online the blocks present at its start, and each block that the kernel announces', async () => {
    await sysfs.plugMemory(1)
    watchMemory(os, silentLogger(), nothing)
    await turn()
    expect(await sysfs.memoryOnline(1)).toBe('1')
    for (const block of [2, 3]) await sysfs.plugMemory(block)
    sysfs.announce('add', '/devices/system/memory/memory3', 'memory')
    await turn()
    expect([await sysfs.memoryOnline(2), await sysfs.memoryOnline(3)]).toEqual(['0', '1'])
  })

  it.each([
    ['a block that changes', 'change', 'memory'],
    ['something else that is added', 'add', 'block'],
  ])('ignores %s', async (_what, action, subsystem) => {
    watchMemory(os, silentLogger(), nothing)
    await turn()
    await sysfs.plugMemory(2)
    sysfs.announce(action, '/devices/system/memory/memory2', subsystem)
    await turn()
    expect(await sysfs.memoryOnline(2)).toBe('0')
  })

  it('continues after a block that stays offline or was removed', async () => {
    for (const block of [1, 2]) await sysfs.plugMemory(block)
    sysfs.refusals.set(`${MEMORY}/memory1/online`, 'EINVAL')
    watchMemory(os, silentLogger(), nothing)
    sysfs.announce('add', '/devices/system/memory/memory9', 'memory')
    sysfs.announce('add', '/devices/system/memory/memory2', 'memory')
    await turn()
    expect(await sysfs.memoryOnline(2)).toBe('1')
  })

  it.each(['ENOBUFS', 'EIO'])('checks all blocks again when events are lost (%s)', async (errno) => {
    watchMemory(os, silentLogger(), nothing)
    await turn()
    await sysfs.plugMemory(7)
    for (const { error } of os.uevents.listeners) error(kernelError('receive', 'uevents', errno))
    await turn()
    expect(await sysfs.memoryOnline(7)).toBe('1')
  })
})

describe('probeMemory', () => {
  const told: string[] = []

  beforeEach(async () => {
    told.length = 0
    await os.files.put(`${MEMORY}/probe`, '')
    await os.files.put(`${MEMORY}/block_size_bytes`, '8000000\n')
    os.files.onWrite = (path, data) => {
      if (path !== `${MEMORY}/probe`) return
      if (data === '0x200000000') throw kernelError('write', path, 'EEXIST')
      told.push(data)
    }
  })

  it('writes each address to the kernel, in upper-case hexadecimal', async () => {
    await probeMemory(os.files, [0x1_f800_0000n, 0xffff_ffff_f800_0000n])
    expect(told).toEqual(['0x1F8000000', '0xFFFFFFFFF8000000'])
  })

  it('refuses an address that is not the start of a block, before it writes any', async () => {
    await expect(probeMemory(os.files, [0x1_f800_0000n, 0x1_f800_1000n])).rejects.toMatchObject({
      code: 'INVALID_ARGUMENT',
      message: 'memHotplugProbeAddr 0x1F8001000: not a multiple of the block size 0x8000000',
    })
    expect(told).toEqual([])
  })

  it('names the address that the kernel refused', async () => {
    await expect(probeMemory(os.files, [0x2_0000_0000n])).rejects.toMatchObject({
      code: 'INTERNAL',
      message: 'probe memory at 0x200000000',
      cause: { errno: 'EEXIST' },
    })
  })

  it('fails without the probe interface, and does not need it for an empty list', async () => {
    await os.files.removeFile(`${MEMORY}/probe`)
    await expect(probeMemory(os.files, [0n])).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
      message: `memory probe: the kernel has no ${MEMORY}/probe, because it detects added memory itself`,
    })
    await probeMemory(os.files, [])
  })
})
