import { describe, expect, it } from 'vitest'
import { firmwareState, readFirmwareItem } from '../../../src/handlers/network/vm-metadata/firmware-item.ts'
import { FakeOs } from '../../support/fakes/fake-os.ts'
import { firmwareTree, OPT_ITEM, ROOT } from '../../support/handlers/network/firmware-tree.ts'

const bytes = Uint8Array.of(1, 2, 3)

describe('firmwareState', () => {
  it('distinguishes a kernel without the driver from a machine without the device', async () => {
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

  const other = Uint8Array.of(9)
  it.each([
    ['another item is a folder of its name', [{ name: 'opt', bytes: other }]],
    ['its name is a folder of another item', [{ name: `${OPT_ITEM}/more`, bytes: other }]],
    ['there is no by_name at all', []],
    ['a name is no text', [{ name: Uint8Array.of(0xff), bytes: other, byKeyOnly: true }]],
  ])('finds an item that by_name does not show when %s', async (_, others) => {
    const tree = await firmwareTree([...others, { name: OPT_ITEM, bytes, byKeyOnly: true }])
    expect(await readFirmwareItem(tree, OPT_ITEM)).toEqual(Buffer.from(bytes))
  })

  it('does not search all items when by_name rules the item out', async () => {
    const tree = await firmwareTree([
      { name: 'etc/e820', bytes: other },
      { name: 'opt/com.example/other', bytes: other },
    ])
    const list = () => Promise.reject(new Error('by_key is looked through'))
    expect(
      await readFirmwareItem({ root: tree.root, files: Object.assign(tree.files, { list }) }, OPT_ITEM),
    ).toBeUndefined()
  })

  it('ignores an item whose name only starts with the wanted name', async () => {
    const tree = await firmwareTree([{ name: `${OPT_ITEM}2`, bytes, byKeyOnly: true }])
    expect(await readFirmwareItem(tree, OPT_ITEM)).toBeUndefined()
  })

  it.each([
    [4, `firmware item ${OPT_ITEM}: read 3 bytes, want 4`],
    [2, `firmware item ${OPT_ITEM}: read 3 bytes, want 2`],
    [65_537, `firmware item ${OPT_ITEM}: 65537 bytes, want at most 65536`],
  ])('refuses an item of 3 bytes whose size says %i', async (size, message) => {
    const tree = await firmwareTree([{ name: OPT_ITEM, bytes, size }])
    await expect(readFirmwareItem(tree, OPT_ITEM)).rejects.toMatchObject({ code: 'INTERNAL', message })
  })
})
