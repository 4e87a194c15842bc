import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { readRing, writeRing } from '../../../src/host/instance/holder/holder-files.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import type { Link } from '../../support/wing/moves/fleet.ts'
import { History } from '../../support/wing/moves/history.ts'

type Written = readonly [number: number, boot: number, time: number]

function historyOf({ records = [], chain = [] }: { records?: readonly Written[]; chain?: readonly Link[] }) {
  const folder = temporaryFolder()
  const journal = join(folder, 'journal')
  writeFileSync(journal, Buffer.concat([...records.map(sector), Buffer.alloc(512)]))
  return { folder, history: new History({ journal, printed: () => readRing(folder, 0), chain: () => chain }) }
}

function sector([number, boot, time]: Written): Buffer {
  const bytes = Buffer.alloc(512)
  bytes.writeUInt32LE(number, 0)
  bytes.writeUInt32LE(boot, 4)
  bytes.writeBigUInt64LE(BigInt(time), 8)
  return bytes
}

it.each<readonly [string, readonly Written[]]>([
  [
    'a record of another number',
    [
      [1, 1, 5],
      [3, 1, 6],
    ],
  ],
  [
    'a record of an earlier time',
    [
      [1, 1, 5],
      [2, 1, 4],
    ],
  ],
  [
    'a boot that nobody has asked for',
    [
      [1, 1, 5],
      [2, 2, 6],
    ],
  ],
  [
    'a boot after a later one',
    [
      [1, 2, 5],
      [2, 1, 6],
    ],
  ],
])('sees %s in a journal', (_, records) => {
  expect(() => historyOf({ records }).history.lookAtJournal()).toThrow('journal: after record')
})

it('takes a boot that was asked for', () => {
  const { history } = historyOf({
    records: [
      [1, 1, 5],
      [2, 2, 3],
    ],
  })
  history.bootsAgain({ holdersKilled: 1 })
  history.lookAtJournal()
  expect(history.length).toBe(2)
})

it('sees a machine that has ended without a kill', () => {
  expect(() => historyOf({}).history.bootsAgain({ holdersKilled: 0 })).toThrow('nothing has killed it')
})

it.each([
  ['a line that is lost', '00000001 00000001\n00000003 00000001\n'],
  ['a line that is there twice', '00000001 00000001\n00000001 00000001\n'],
  ['the first line of a later look that is lost', '00000003 00000001\n'],
  ['a record of another machine', '! 00000001 00000001\n'],
  ['a line that is cut in one boot', '00000001 00000001\n00000000002 00000001\n'],
  ['a record that was not written', '00000001 00000001\n00000002 00000001\n00000003 00000001\n'],
])('sees %s on a console', async (_, text) => {
  const { folder, history } = historyOf({
    records: [
      [1, 1, 5],
      [2, 1, 6],
    ],
  })
  await writeRing(folder, 0, { bytes: Buffer.from(text), first: 0n, isClosed: false })
  await expect(history.lookAtConsole('a')).rejects.toThrow('console: ')
})

it('takes the beginning of a line in which a boot was killed', async () => {
  const { folder, history } = historyOf({
    records: [
      [1, 1, 5],
      [2, 2, 6],
    ],
  })
  history.bootsAgain({ holdersKilled: 1 })
  const bytes = Buffer.from('00000001 00000001\n00000000002 00000002\n')
  await writeRing(folder, 0, { bytes, first: 0n, isClosed: false })
  await history.lookAtConsole('a')
  expect(history.printed).toBe(2)
})

const LINES = ['00000001 00000001\n', '00000002 00000001\n'] as const

async function looksAt(...rings: readonly (readonly [text: string, first: bigint])[]): Promise<History> {
  const { folder, history } = historyOf({
    records: [
      [1, 1, 5],
      [2, 1, 6],
    ],
  })
  for (const [text, first] of rings) {
    await writeRing(folder, 0, { bytes: Buffer.from(text), first, isClosed: false })
    await history.lookAtConsole('a')
  }
  return history
}

it('goes on where an earlier look at a console has ended', async () => {
  const all = LINES.join('')
  const { length } = await looksAt([LINES[0], 0n], [all.slice(0, -1), 0n], [all, 0n], [all, 0n])
  expect(length).toBe(2)
})

it.each<readonly [string, string, bigint]>([
  ['whose begin is lost', LINES[1], 18n],
  ['whose end is lost', LINES[0], 0n],
  ['that begins with a later boot', '00000001 00000002\n00000002 00000002\n', 0n],
])('sees a console %s since an earlier look', async (_, text, first) => {
  await expect(looksAt([LINES.join(''), 0n], [text, first])).rejects.toThrow('console: ')
})

const link = (generation: number, pod: string, run: string): Link => ({ generation, pod, run })

it.each<readonly [string, readonly Link[]]>([
  ['a generation that is there twice', [link(1, 'b/i', '1'), link(1, 'a/i', '2')]],
  ['an earlier run', [link(1, 'a/i', '5'), link(2, 'b/i', '6'), link(3, 'a/i', '4')]],
  ['another host', [link(1, 'a/i', '1'), link(2, 'b/i', '2')]],
])('sees %s in the chain of switchovers', (_, chain) => {
  expect(() => historyOf({ chain }).history.lookAtChain('a')).toThrow('chain: ')
})
