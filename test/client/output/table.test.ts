import { describe, expect, it } from 'vitest'
import { type Column, table } from '../../../src/client/output/table.ts'
import { ageText, bytesText } from '../../../src/client/output/text.ts'

interface Row {
  readonly name: string
  readonly size: string
  readonly step: string
}

const COLUMNS: readonly Column<Row>[] = [
  { title: 'NAME', text: ({ name }) => name },
  { title: 'SIZE', text: ({ size }) => size, right: true, drop: 1 },
  { title: 'STEP', text: ({ step }) => step, drop: 2 },
]
const ROWS: readonly Row[] = [
  { name: 'a-long-name', size: '5', step: 'mount /run/x' },
  { name: 'b', size: '12345', step: '' },
]

describe('table', () => {
  it('aligns its columns', () => {
    expect(table(COLUMNS, ROWS, undefined)).toBe(
      'NAME          SIZE  STEP\na-long-name      5  mount /run/x\nb            12345  \n',
    )
  })

  it('leaves columns out in their order when the terminal is narrow', () => {
    expect(table(COLUMNS, ROWS, 20)).toBe('NAME          SIZE\na-long-name      5\nb            12345\n')
    expect(table(COLUMNS, ROWS, 12)).toBe('NAME       \na-long-name\nb          \n'.replaceAll(/ +\n/g, '\n'))
  })

  it('truncates what does not fit into 10 columns', () => {
    expect(table(COLUMNS, ROWS, 10)).toBe('NAME\na-long-na…\nb\n')
  })

  it('shows control characters of a name instead of sending them', () => {
    expect(table(COLUMNS, [{ name: '\x1b[2J', size: '', step: '' }], undefined)).toContain('\\u001b[2J')
  })
})

describe('ageText and bytesText', () => {
  it('choose the unit', () => {
    expect([5, 59_999, 65_000, 7_300_000, 300_000_000].map(ageText)).toEqual([
      '5ms',
      '59s',
      '1m05s',
      '2h01m',
      '3d',
    ])
    expect([0, 1023, 1536, 104_857_600n].map(bytesText)).toEqual(['0 B', '1023 B', '1.5 KiB', '100 MiB'])
  })
})
