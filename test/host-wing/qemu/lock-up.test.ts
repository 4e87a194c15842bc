import { spawn } from 'node:child_process'
import { afterAll, describe, expect, it } from 'vitest'
import { LockUpWatch } from '../../../src/host/qemu/lock-up.ts'
import { endChild } from '../../support/processes.ts'

const spinning = spawn('sh', ['-c', 'while :; do :; done'])
const sleeping = spawn('sleep', ['1000'])
afterAll(async () => {
  await Promise.all([endChild(spinning), endChild(sleeping)])
})

/** Watches a guest with this process as its QEMU. */
function watched(pid: number | undefined) {
  const listeners: ((line: string) => void)[] = []
  const onLine = (listener: (line: string) => void) => {
    listeners.push(listener)
    return () => {}
  }
  let nowMs = 0
  const watch = new LockUpWatch({ pid: pid ?? 0, console: { onLine } }, () => nowMs)
  const print = (line: string) => {
    for (const listener of listeners) listener(line)
  }
  return { watch, print, pass: (ms: number) => (nowMs += ms) }
}

describe('LockUpWatch', () => {
  it('quotes the kernel, also when lines come after its words', async () => {
    const { watch, print } = watched(sleeping.pid)
    print('[   52.1] watchdog: BUG: soft lockup - CPU#0 stuck for 26s! [swapper/0:1]')
    print('[   52.2] Modules linked in: virtio_blk')
    expect(await watch.describe()).toMatch(
      /^the guest has locked up \(.*soft lockup - CPU#0 stuck for 26s! .*\); under emulation .*--cpus 1/,
    )
  })

  it.each([
    ['busy', spinning],
    ['idle', sleeping],
  ])(
    'names a remedy for both causes of a guest that never wrote, with a CPU that is %s',
    async (_what, { pid }) => {
      const { watch, pass } = watched(pid)
      expect(await watch.describe()).toBeUndefined()
      pass(30_000)
      expect(await watch.describe()).toMatch(
        /^the kernel has never written a line .*: run it again, .*--kernel .*console=$/,
      )
    },
  )

  it('distinguishes a silent console with a busy CPU from a guest that waits, and from one that prints', async () => {
    const [busy, idle, printing] = [spinning, sleeping, spinning].map(({ pid }) => watched(pid))
    for (const guest of [busy, idle, printing]) {
      guest?.print('Linux version 6')
      guest?.pass(30_000)
    }
    printing?.print('boot step')
    printing?.pass(9000)
    expect(await idle?.watch.describe()).toBeUndefined()
    expect(await printing?.watch.describe()).toBeUndefined()
    // A thread that waits for a CPU is counted late on a busy machine.
    await expect
      .poll(() => busy?.watch.describe(), { timeout: 20_000 })
      .toMatch(
        /^the guest has locked up \(no line on its console for 30 s while a CPU is busy\); under emulation/,
      )
  })
})
