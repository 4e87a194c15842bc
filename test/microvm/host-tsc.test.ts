import { describe, expect, it } from 'vitest'
import { tscKhz } from '../../src/microvm/host-tsc.ts'

const cpuinfo = 'processor\t: 0\ncpu MHz\t\t: 2445.432\nflags\t\t: fpu tsc constant_tsc hypervisor\n'

describe('tscKhz', () => {
  it('is the clock of a CPU whose counter and clock are one', () => {
    expect(tscKhz(cpuinfo, false)).toBe(2_445_432)
  })

  it.each([
    ['the clock is scaled', cpuinfo, true],
    ['the counter is not constant', cpuinfo.replace('constant_tsc ', ''), false],
    ['the CPU is of another architecture', 'processor\t: 0\nBogoMIPS\t: 50.00\n', false],
  ])('is not known when %s', (_name, text, scaled) => {
    expect(tscKhz(text, scaled)).toBeUndefined()
  })
})
