import { describe, expect, it } from 'vitest'
import { chooseAcceleration, tscKhz } from '../../../src/host/qemu/host.ts'

const plain = 'processor\t: 0\nflags\t\t: fpu vme sse2 hypervisor\n'
const intel = 'processor\t: 0\nflags\t\t: fpu vme vmx sse2\n'
const amd = 'processor\t: 0\nflags\t\t: fpu svm\n'

describe('chooseAcceleration', () => {
  it.each([
    ['emulation on a CPU without virtualisation, whatever /dev/kvm says', plain, true, undefined, 'tcg'],
    ['KVM on Intel', intel, true, undefined, 'kvm'],
    ['KVM on AMD', amd, true, '', 'kvm'],
    ['emulation without /dev/kvm', intel, false, undefined, 'tcg'],
    ['what the override says', plain, false, 'kvm', 'kvm'],
    ['emulation when asked', intel, true, 'tcg', 'tcg'],
  ])('chooses %s', (_name, cpuinfo, kvmUsable, override, expected) => {
    expect(chooseAcceleration({ cpuinfo, kvmUsable, override })).toBe(expected)
  })

  it('refuses an unknown override', () => {
    expect(() => chooseAcceleration({ cpuinfo: plain, kvmUsable: false, override: 'xen' })).toThrow(
      'MICROVM_ACCEL=xen: choose kvm or tcg',
    )
  })
})

const cpuinfo = 'processor\t: 0\ncpu MHz\t\t: 2445.432\nflags\t\t: fpu tsc constant_tsc hypervisor\n'

describe('tscKhz', () => {
  it('is the clock of a CPU whose counter runs at that rate', () => {
    expect(tscKhz(cpuinfo, false)).toBe(2_445_432)
  })

  it.each([
    ['the clock is scaled', cpuinfo, true],
    ['the counter is not constant', cpuinfo.replace('constant_tsc ', ''), false],
    ['the CPU is of another architecture', 'processor\t: 0\nBogoMIPS\t: 50.00\n', false],
  ])('is unknown when %s', (_name, text, scaled) => {
    expect(tscKhz(text, scaled)).toBeUndefined()
  })
})
