import { spawnSync } from 'node:child_process'
import { describe, expect, it } from 'vitest'
import { machineArguments } from '../../../../src/host/qemu/machine/machine-arguments.ts'
import { provisionsFor } from '../../../../src/host/qemu/machine/provisions.ts'
import type { FileBackend } from '../../../../src/host/spec/spec.ts'
import { expanded } from '../../../support/host-wing/expansion.ts'
import { temporaryFolder } from '../../../support/temporary-folder.ts'
import { image } from '../../../support/wing/real-wing.ts'

const READS = 12

/** How many times a second QEMU reads 4 KiB of a disk with these limits, once its first burst is over. */
function readsPerSecond(limits: NonNullable<FileBackend['limits']>): number {
  const path = image(temporaryFolder(), 'disk', 4)
  const machine = expanded({ storage: [{ source: 'disk' }], console: 'none' })
  const backends = { 'disk0-backend': { kind: 'file', path, access: 'read-write', limits } } as const
  const provide = provisionsFor(machine, backends, { ownFile: (name) => name })
  const words = machineArguments(machine, { acceleration: 'tcg', nowMs: 0, provide })
  const ask = (execute: string, own = {}) => `${JSON.stringify({ execute, arguments: own })}\n`
  const read = ask('human-monitor-command', { 'command-line': 'qemu-io name-disk0-backend.l "read 0 4k"' })
  const input = ask('qmp_capabilities') + read.repeat(READS) + ask('quit')
  const options = { input, timeout: 30_000, encoding: 'utf8' } as const
  const { stderr, stdout } = spawnSync('qemu-system-x86_64', [...words, '-qmp', 'stdio'], options)
  const rates = [...stdout.matchAll(/ ([\d.]+) ops\/sec/g)].map(([, rate]) => Number(rate))
  if (rates.length !== READS) throw new Error(`QEMU: ${stderr}${stdout}`)
  // A late one is followed by an early one.
  const seconds = rates.slice(READS / 2).reduce((sum, rate) => sum + 1 / rate, 0)
  return READS / 2 / seconds
}

describe('the limits of a disk', () => {
  it.each([{ iopsTotal: 20 }, { bytesPerSecond: 20 * 4096 }, { iopsTotal: 20, bytesPerSecond: 1 << 30 }])(
    'are kept by QEMU: %j',
    (limits) => {
      const rate = readsPerSecond(limits)
      expect(rate).toBeGreaterThan(10)
      expect(rate).toBeLessThan(24)
    },
  )

  it('are none that is felt where they are high', () => {
    expect(readsPerSecond({ iopsTotal: 1_000_000 })).toBeGreaterThan(100)
  })
})
