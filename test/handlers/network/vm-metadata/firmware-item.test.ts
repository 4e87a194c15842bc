import { describe, expect, it } from 'vitest'
import {
  firmwareState,
  readFirmwareItem,
} from '../../../../src/handlers/network/vm-metadata/firmware-item.ts'
import { FakeOs } from '../../../fakes/os/fake-os.ts'
import { firmwareTree, OPT_ITEM, ROOT } from './firmware-tree.ts'

const bytes = Uint8Array.of(1, 2, 3)

describe('firmwareState', () => {
  it('tells a kernel without the driver from a machine without the device', async () => {
    expect(await firmwareState({ files: new FakeOs().files, root: ROOT })).toBe('no driver')
    expect(await firmwareState(await firmwareTree(undefined))).toBe('no device')
    expect(await firmwareState(await firmwareTree([]))).toBe('ready')
  })
})

describe('readFirmwareItem', () => {
  it('reads an item by its name', async () => {
    const tree = await firmwareTree([
      { name: 'etc/e820', bytes: Uint8Array.of(9) },
      { name: OPT_ITEM, bytes },
    ])
    expect(await readFirmwareItem(tree, OPT_ITEM)).toEqual(Buffer.from(bytes))
  })

  it('finds an item that by_name had no room for, among names that are no text', async () => {
    const tree = await firmwareTree([
      { name: Uint8Array.of(0xff, 0xfe), bytes: Uint8Array.of(9), byKeyOnly: true },
      { name: OPT_ITEM, bytes, byKeyOnly: true },
    ])
    expect(await readFirmwareItem(tree, OPT_ITEM)).toEqual(Buffer.from(bytes))
  })

  it('does not take a folder of by_name for an item', async () => {
    const tree = await firmwareTree([
      { name: `${OPT_ITEM}/more`, bytes: Uint8Array.of(9) },
      { name: OPT_ITEM, bytes, byKeyOnly: true },
    ])
    expect(await readFirmwareItem(tree, OPT_ITEM)).toEqual(Buffer.from(bytes))
  })

  it('does not take an item whose name only begins alike', async () => {
    const tree = await firmwareTree([{ name: `${OPT_ITEM}2`, bytes, byKeyOnly: true }])
    expect(await readFirmwareItem(tree, OPT_ITEM)).toBeUndefined()
  })

  it.each([
    [4, `firmware item ${OPT_ITEM}: 3 bytes of 4 could be read`],
    [2, `firmware item ${OPT_ITEM}: 3 bytes of 2 could be read`],
    [65_537, `firmware item ${OPT_ITEM}: 65537 bytes are more than 65536`],
  ])('refuses an item of 3 bytes whose size says %i', async (size, message) => {
    const tree = await firmwareTree([{ name: OPT_ITEM, bytes, size }])
    await expect(readFirmwareItem(tree, OPT_ITEM)).rejects.toMatchObject({ code: 'INTERNAL', message })
  })
})
