import { describe, expect, it } from 'vitest'
import { cpioParts } from '../../../src/image/formats/cpio.ts'
import { directory, fileOf, link, type TreeEntry } from '../../../src/image/formats/tree.ts'

const consoleDevice: TreeEntry = {
  kind: 'character-device',
  path: 'dev/console',
  mode: 0o600,
  major: 5,
  minor: 1,
}

/** One line per entry, as `cpio --create --format=newc` writes it; `·` stands for a zero byte. */
function archive(entries: readonly TreeEntry[]): string {
  return Buffer.concat([...cpioParts(entries)])
    .toString('latin1')
    .replaceAll('\0', '·')
    .replaceAll('070701', '\n070701')
}

function fields(...values: readonly number[]): string {
  return `070701${values.map((value) => value.toString(16).toUpperCase().padStart(8, '0')).join('')}`
}

describe('cpioParts', () => {
  it('writes the recorded bytes for a folder, a device, a link and a file', () => {
    const tree = [link('init', 'sbin/init'), consoleDevice, fileOf('modules/order', 'a.ko\n')]
    expect(archive(tree)).toBe(
      [
        '',
        '07070100000001000041ED00000000000000000000000200000000000000000000000000000000000000000000000000000004' +
          '00000000dev···',
        '07070100000002000021800000000000000000000000010000000000000000000000000000000000000005000000010000000C' +
          '00000000dev/console···',
        '070701000000030000A1FF000000000000000000000001000000000000000900000000000000000000000000000000' +
          '0000000500000000init··sbin/init···',
        '07070100000004000041ED00000000000000000000000200000000000000000000000000000000000000000000000000000008' +
          '00000000modules···',
        '070701000000050000' +
          '81A40000000000000000000000010000000000000005000000000000000000000000000000000000000E00000000' +
          'modules/order·a.ko\n···',
        '0707010000000000000000000000000000000000000001000000000000000000000000000000000000000000000000' +
          '0000000B00000000TRAILER!!!····',
      ].join('\n'),
    )
  })

  it('numbers the entries and sets their time to 0', () => {
    const first = archive([directory('tmp', 0o1777)]).split('\n')[1]
    expect(first).toBe(`${fields(1, 0o041777, 0, 0, 2, 0, 0, 0, 0, 0, 0, 4, 0)}tmp···`)
  })

  it('does not depend on the order in which entries are given', () => {
    const tree = [directory('b'), fileOf('b/c', 'x'), directory('a')]
    expect(archive(tree.toReversed())).toBe(archive(tree))
  })
})
