import { beforeEach, describe, expect, it } from 'vitest'
import { neverAborted } from '../../../src/base/abort.ts'
import { addSwap, addSwapPath } from '../../../src/handlers/guest/swap.ts'
import { kernelError } from '../../../src/os/errors.ts'
import { statusOf } from '../../../src/rpc/status.ts'
import { FakeOs } from '../../support/fakes/fake-os.ts'
import { hotplugOf } from '../../support/handlers/device/device-dependencies.ts'

const DEVICE = '/sys/devices/pci0000:00/0000:00:1f.0/0000:01:03.0'

let os: FakeOs

beforeEach(async () => {
  os = new FakeOs()
  await os.files.makeDirectories('/sys/devices/pci0000:00/0000:00:1f.0/pci_bus/0000:01')
  await os.files.put(`${DEVICE}/virtio4/block/vdb/dev`, '254:16\n')
  await os.files.makeSpecial('/dev/vdb', { kind: 'block', major: 254, minor: 16 })
  os.volumes.swappable.add('/dev/vdb')
})

describe('addSwap', () => {
  const add = (slots: readonly number[]) => addSwap({ ...os, ...hotplugOf(os) }, slots, neverAborted)

  it('enables swap on the disk at a PCI path, given as slot numbers', async () => {
    await add([31, 3])
    expect(os.volumes.swapped).toEqual(['/dev/vdb'])
  })

  it.each([
    ['no slot', [], 'PCIPath is empty'],
    ['a slot that no bus has', [2, 32], 'PCIPath: slot 32, want at most 31'],
    ['the largest number', [4_294_967_295, 1, 1], 'PCIPath: slot 4294967295, want at most 31'],
  ])('refuses %s', async (_what, slots, message) => {
    await expect(add(slots)).rejects.toMatchObject({ code: 'INVALID_ARGUMENT', message })
    expect(os.uevents.listeners.size).toBe(0)
  })
})

describe('addSwapPath', () => {
  const add = (path: string) => addSwapPath({ ...os, ...hotplugOf(os) }, path)

  it('enables swap on a device, and accepts one that is already enabled, under any name', async () => {
    await add('/dev/vdb')
    await add('/dev/vdb')
    await os.files.makeSpecial('/dev/other-name', { kind: 'block', major: 254, minor: 16 })
    os.volumes.swapped.push('/dev/other-name')
    os.volumes.swapped.splice(0, 1)
    os.volumes.addSwap = (path) => Promise.reject(kernelError('swapon', path, 'EBUSY'))
    await add('/dev/vdb')
    expect(os.volumes.swapped).toEqual(['/dev/other-name'])
  })

  it('refuses a path that the kernel would truncate', async () => {
    await expect(add('/dev/vdb\0x')).rejects.toMatchObject({
      code: 'INVALID_ARGUMENT',
      message: 'path "/dev/vdb\\u0000x": contains a NUL byte',
    })
    expect(os.volumes.swapped).toEqual([])
  })

  it('accepts a file that is already enabled', async () => {
    await os.files.put('/run/swap', '')
    os.volumes.swappable.add('/run/swap')
    await add('/run/swap')
    await add('/run/swap')
    expect(os.volumes.swapped).toEqual(['/run/swap'])
  })

  it('passes on the error of a device that is in use for another purpose', async () => {
    os.volumes.addSwap = (path) => Promise.reject(kernelError('swapon', path, 'EBUSY'))
    os.volumes.swapped.push('/dev/vdz')
    await expect(add('/dev/vdb')).rejects.toMatchObject({
      code: 'INTERNAL',
      message: 'swapon /dev/vdb: EBUSY',
    })
  })

  it('passes on any other error, even when swap is already enabled', async () => {
    await add('/dev/vdb')
    os.volumes.addSwap = (path) => Promise.reject(kernelError('swapon', path, 'EPERM'))
    await expect(add('/dev/vdb')).rejects.toThrow('swapon /dev/vdb: EPERM')
  })

  it('explains the error of a device without a swap signature', async () => {
    os.volumes.swappable.clear()
    await expect(add('/dev/vdb').catch(statusOf)).resolves.toEqual({
      code: 'INTERNAL',
      message: 'swap /dev/vdb: no swap signature, want one made by mkswap: swapon /dev/vdb: EINVAL',
    })
  })

  it.each(['', 'dev/vdb', '../dev/vdb'])('refuses the path %j', async (path) => {
    await expect(add(path)).rejects.toMatchObject({
      code: 'INVALID_ARGUMENT',
      message: `path "${path}": not an absolute path`,
    })
  })
})
