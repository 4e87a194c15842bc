import { existsSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { INSTANCES } from '../../../../scripts/test/instances-run.ts'
import { CountingMachines } from '../../../support/wing/counting-machine.ts'
import { leftovers } from '../../../support/wing/leftovers.ts'

const EXPORT = ['stop', 'folder', 'memory', 'devices', 'disks', 'rings', 'manifest', 'end'] as const
const IMPORT = ['files', 'memory', 'devices', 'streams', 'cont', 'commit', 'repair'] as const
const TIMEOUT_MS = 240_000

type Killed = 'daemon' | 'qemu' | 'holder'

/** `npm run instances` kills QEMU and the holder at all steps, and this group at a few. */
const ALL = process.env[INSTANCES.lives] !== undefined

/** What the machine is after the death at a step. A QEMU that is killed takes a memory with it that is nowhere else yet. */
const EXPECTED: Readonly<
  Record<Killed, { readonly export: readonly string[]; readonly import: readonly string[] }>
> = {
  daemon: {
    export: [...Array.from({ length: 7 }, () => 'running'), 'suspended'],
    import: [...Array.from({ length: 5 }, () => 'suspended'), 'running', 'running'],
  },
  qemu: {
    export: [...Array.from({ length: 4 }, () => 'stopped'), ...Array.from({ length: 4 }, () => 'suspended')],
    // There is none yet at the first step.
    import: ['running', ...Array.from({ length: 4 }, () => 'suspended'), 'stopped', 'stopped'],
  },
  holder: {
    export: [...Array.from({ length: 6 }, () => 'stopped'), 'suspended', 'suspended'],
    import: ['running', ...Array.from({ length: 4 }, () => 'suspended'), 'stopped', 'stopped'],
  },
}

function stepsOf(
  killed: Killed,
  operation: 'export' | 'import',
): readonly (readonly [step: string, expected: string])[] {
  const names = operation === 'export' ? EXPORT : IMPORT
  const all = names.map((name, index) => [name, EXPECTED[killed][operation][index] ?? ''] as const)
  return ALL || killed === 'daemon' ? all : all.filter(([name]) => FEW.includes(name))
}

const FEW: readonly string[] = ['devices', 'end', 'cont']

describe('a saved machine whose guest has run', { timeout: TIMEOUT_MS }, () => {
  it('is not resumed a second time after the death of its daemon and its QEMU', async () => {
    const host = new CountingMachines()
    await host.make()
    await host.suspend()
    const reached = Promise.withResolvers<void>()
    host.atStep = async (_, at) => {
      if (at !== 'commit') return
      for (const pid of host.pidsOf('qemu')) process.kill(pid, 'SIGKILL')
      reached.resolve()
      await new Promise(() => {})
    }
    void host.resume().catch(() => {})
    await reached.promise
    await host.leave()
    host.atStep = async () => {}
    await expect.poll(() => host.found(), { timeout: 10_000 }).toBe('stopped')
    await expect(host.resume({}, 'other')).rejects.toMatchObject({ code: 'FAILED_PRECONDITION' })
    await host.end()
    expect(leftovers(host.folder)).toEqual([])
  })
})

describe('a machine is running or suspended, never half and never twice', { timeout: TIMEOUT_MS }, () => {
  it.each(['daemon', 'qemu', 'holder'] as const)('after a kill -9 of its %s at any step', async (killed) => {
    const host = new CountingMachines()
    await host.make()
    const run = async () => {
      const before = await host.found()
      if (before === 'suspended') await host.resume()
      else if (before !== 'running') await host.again()
    }
    for (const [step, expected] of stepsOf(killed, 'export')) {
      await run()
      await host.killAt({ killed, operation: 'export', step }, () => host.suspend())
      await expect.poll(() => host.found(), { timeout: 10_000, message: step }).toBe(expected)
      const store = join(host.folder, 'saved/+own')
      const names = existsSync(store) ? readdirSync(store) : []
      expect(
        names.filter((name) => name !== 'one'),
        step,
      ).toEqual([])
    }
    for (const [step, expected] of stepsOf(killed, 'import')) {
      if ((await host.found()) !== 'suspended') {
        await run()
        await host.suspend()
      }
      await host.killAt({ killed, operation: 'import', step }, () => host.resume())
      await expect.poll(() => host.found(), { timeout: 10_000, message: step }).toBe(expected)
      if (expected === 'running') await host.counted('web', 10)
    }
    await host.end()
    expect(leftovers(host.folder)).toEqual([])
  })
})
