import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { describe, expect, it } from 'vitest'
import { linuxFiles } from '../../../src/os/files/linux-files.ts'
import { parseStartNs, processStartNs } from '../../../src/os/process/proc-stat.ts'
import { realNative } from '../../support/os/real-native.ts'

describe('parseStartNs', () => {
  it('is not misled by a name with spaces and parentheses', () => {
    const stat =
      '42 (a (very) odd) S name) S 1 42 42 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 12345 1000 100 184'
    expect(parseStartNs(stat)).toBe(123_450_000_000n)
  })
})

describe('processStartNs', () => {
  it('returns the start time of a process by CLOCK_BOOTTIME', async () => {
    const native = await realNative()
    const before = native.boottimeNs()
    const child = spawn('cat', { stdio: ['pipe', 'ignore', 'ignore'] })
    const startNs = await processStartNs(linuxFiles(native), child.pid ?? 0)
    const after = native.boottimeNs()
    child.stdin.end()
    await once(child, 'exit')
    // The kernel counts in steps of 10 ms.
    expect(startNs).toBeGreaterThanOrEqual(before - 10_000_000n)
    expect(startNs).toBeLessThanOrEqual(after)
  })

  it('returns undefined for an unused pid', async () => {
    expect(await processStartNs(linuxFiles(await realNative()), 4194305)).toBeUndefined()
  })
})
