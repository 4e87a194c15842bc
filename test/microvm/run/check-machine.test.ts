import { describe, expect, it } from 'vitest'
import { UsageError } from '../../../src/microvm/command-line/usage-error.mjs'
import { checkMachine, machineSize } from '../../../src/microvm/run/check-machine.ts'

const MACHINE = { memoryMib: 24_000, availableMib: 8000, cpus: 2 }

describe('checkMachine', () => {
  it('says nothing of a guest that fits', () => {
    expect(checkMachine({ memoryMib: 8000, cpus: 2 }, MACHINE)).toEqual([])
  })

  it('says nothing of the two CPUs that a guest has by default', () => {
    expect(checkMachine({ memoryMib: 512, cpus: 2 }, { ...MACHINE, cpus: 1 })).toEqual([])
  })

  it('refuses more memory than the machine has', () => {
    const check = () => checkMachine({ memoryMib: 1_000_000, cpus: 1 }, MACHINE)
    expect(check).toThrow(UsageError)
    expect(check).toThrow('--memory 1000000: this machine has 24000 MiB, want less')
  })

  it('warns of more memory than is free, and of more CPUs than there are', () => {
    expect(checkMachine({ memoryMib: 9000, cpus: 64 }, MACHINE)).toEqual([
      '--memory 9000: only 8000 MiB are free now, so the guest may be slow',
      '--cpus 64: this machine has 2, so the guest is slow',
    ])
  })

  it('knows this machine', () => {
    const { memoryMib, availableMib, cpus } = machineSize()
    expect(memoryMib).toBeGreaterThan(availableMib)
    expect(availableMib).toBeGreaterThan(0)
    expect(cpus).toBeGreaterThan(0)
  })
})
