import { describe, expect, it } from 'vitest'
import { pressurePercent, stalledUs } from '../../../src/handlers/guest/mem-agent/pressure.ts'

/** /proc/pressure/io of a guest (Linux 6.1) that has just booted. */
const RECORDED = `some avg10=0.51 avg60=0.17 avg300=0.03 total=193754
full avg10=0.51 avg60=0.17 avg300=0.03 total=191072
`

describe('stalledUs', () => {
  it('is the total of the tasks of which some were stalled', () => {
    expect(stalledUs(RECORDED)).toBe(193_754)
  })

  it.each(['', 'some avg10=0.51', 'full avg10=0.51 total=1'])('is not known from %j', (text) => {
    expect(stalledUs(text)).toBeUndefined()
  })
})

describe('pressurePercent', () => {
  const at = (atMs: number, memoryUs: number | undefined, ioUs: number | undefined) => ({
    atMs,
    memoryUs,
    ioUs,
  })

  it.each([
    { what: 'the memory’s share of the time', from: at(0, 0, 0), to: at(1000, 20_000, 0), percent: 2 },
    { what: 'that of I/O, if it is more', from: at(0, 0, 0), to: at(1000, 20_000, 30_000), percent: 3 },
    { what: '0 without a stall, even in no time', from: at(5, 7, 9), to: at(5, 7, 9), percent: 0 },
    { what: '100 for a stall in no time', from: at(5, 7, 9), to: at(5, 8, 9), percent: 100 },
    { what: '100 when memory’s is unknown', from: at(0, undefined, 0), to: at(9, 0, 0), percent: 100 },
    { what: '100 when that of I/O is unknown', from: at(0, 0, 0), to: at(9, 0, undefined), percent: 100 },
    { what: '100 when the total is less than before', from: at(0, 9, 0), to: at(9, 1, 0), percent: 100 },
  ])('is $what', ({ from, to, percent }) => {
    expect(pressurePercent(from, to)).toBe(percent)
  })
})
