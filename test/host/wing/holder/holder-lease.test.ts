import { execFileSync } from 'node:child_process'
import { join } from 'node:path'
import { setTimeout } from 'node:timers/promises'
import { describe, expect, it } from 'vitest'
import type { HolderClient } from '../../../../src/host/instance/holder/holder-client.ts'
import { findHolder } from '../../../../src/host/instance/holder/start-holder.ts'

import {
  connected,
  nextExit,
  readAll,
  sh,
  statusNumber,
  TestHolders,
} from '../../../support/host/test-holder.ts'
import { realNative } from '../../../support/os/real-native.ts'
import { processes, processState } from '../../../support/processes.ts'

const holders = new TestHolders()
const { boottimeNs } = await realNative()
const SIGKILL = { code: undefined, signal: 9 }
const MS = 1_000_000n

/** For a kill to be seen from here, on a machine with other work. */
const LATE = 1500n * MS

const running = async (holder: HolderClient) =>
  (await holder.children()).filter(({ exit }) => exit === undefined).length

async function passed(untilNs: bigint): Promise<void> {
  while (boottimeNs() < untilNs) await setTimeout(Number((untilNs - boottimeNs()) / MS) + 1)
}

/** How often it has waited. */
const waits = (pid: number) => statusNumber(pid, 'voluntary_ctxt_switches')

describe('holder: a lease', () => {
  it('kills all at its end, and lets nothing start after it', async () => {
    const folder = holders.newFolder()
    const holder = await holders.start(folder)
    expect(await holder.heldLease()).toBeUndefined()
    const others = 'setsid setpriv --reuid 65534 --clear-groups sh -c "trap \\"\\" TERM; sleep 1004 & wait" &'
    await holder.start(sh('qemu', 'console', `${others} sleep 1005; wait`))
    await expect
      .poll(() => processes().filter(({ parent }) => parent === holder.pid).length)
      .toBeGreaterThanOrEqual(1)
    const untilNs = boottimeNs() + 300n * MS
    await holder.setLease(untilNs)
    expect(await holder.heldLease()).toEqual({ untilNs, hasEnded: false })
    // Whoever set it may be gone.
    holder.disconnect()
    const next = holders.endLater((await findHolder(folder)) ?? expect.fail('no holder'))
    expect(await next.heldLease()).toEqual({ untilNs, hasEnded: false })
    const ended = nextExit(next)
    expect((await ended).exit).toEqual(SIGKILL)
    const lateNs = boottimeNs() - untilNs
    expect(lateNs).toBeGreaterThanOrEqual(0n)
    expect(lateNs).toBeLessThan(LATE)
    await expect.poll(() => processes().filter(({ parent }) => parent === holder.pid)).toEqual([])
    expect(await next.heldLease()).toEqual({ untilNs, hasEnded: true })
    await expect(next.setLease(boottimeNs() + 1000n * MS)).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
      message: expect.stringContaining('the one before has ended'),
    })
    await expect(next.start(sh('qemu', 'console', 'true'))).rejects.toThrow('start qemu: the lease has ended')
  })

  it('is moved, and costs no wake-up but that of its end', async () => {
    const holder = await holders.start()
    await holder.start(sh('qemu', 'log', 'exec sleep 1006'))
    const firstNs = boottimeNs() + 200n * MS
    await holder.setLease(firstNs)
    await holder.setLease(boottimeNs() + 3599n * 1000n * MS)
    // It has answered, and is about to wait.
    await expect.poll(() => processState(holder.pid)?.state).toBe('S')
    const before = waits(holder.pid)
    await passed(firstNs + 300n * MS)
    expect(before).toBeGreaterThan(0)
    expect(waits(holder.pid)).toBe(before)
    expect(await running(holder)).toBe(1)
    expect(statusNumber(holder.pid, 'VmHWM')).toBeLessThanOrEqual(1024)
  })

  it.each([
    ['0', 'FAILED_PRECONDITION lease:%200:%20has%20passed'],
    ['1', 'FAILED_PRECONDITION lease:%201:%20has%20passed'],
    ['9223372036854775807', 'OUT_OF_RANGE lease:%209223372036854775807:%20want%20at%20most%203600'],
    ['9223372036854775808', 'INVALID_ARGUMENT lease:%20not%20a%20number'],
    ['-1', 'INVALID_ARGUMENT'],
    ['1e3', 'INVALID_ARGUMENT'],
    ['1 2', 'INVALID_ARGUMENT'],
  ])('refuses %s, and is as it was', async (words, error) => {
    const folder = holders.newFolder()
    const holder = await holders.start(folder)
    const untilNs = boottimeNs() + 1000_000n * MS
    await holder.setLease(untilNs)
    const socket = await connected(join(folder, 'holder.sock'))
    socket.end(`lease ${words}\nwatch\n`)
    expect(
      String(await readAll(socket))
        .split('\n')
        .slice(1)
        .join('\n'),
    ).toMatch(new RegExp(`^error ${error}.*\\nok\\n$`))
    expect(await holder.heldLease()).toEqual({ untilNs, hasEnded: false })
  })

  it('has ended for a holder that was stopped, whatever has come meanwhile', async () => {
    const folder = holders.newFolder()
    const holder = await holders.start(folder)
    const child = await holder.start(sh('qemu', 'log', 'exec sleep 1007'))
    const untilNs = boottimeNs() + 200n * MS
    await holder.setLease(untilNs)
    process.kill(holder.pid, 'SIGSTOP')
    const renewed = expect(holder.setLease(untilNs + 1000_000n * MS)).rejects.toThrow('has ended')
    await passed(untilNs + 100n * MS)
    expect(processState(child.pid)?.state).toBe('S')
    process.kill(holder.pid, 'SIGCONT')
    await renewed
    await expect.poll(() => running(holder)).toBe(0)
  })

  it('ends in time beside a program that hangs in its start', async () => {
    const folder = holders.newFolder()
    const holder = await holders.start(folder)
    await holder.start(sh('qemu', 'log', 'exec sleep 1008'))
    execFileSync('mkfifo', [join(folder, 'pipe')])
    const exit = nextExit(holder)
    const untilNs = boottimeNs() + 500n * MS
    await holder.setLease(untilNs)
    const walls = [`read=5:${join(folder, 'pipe')}`]
    const hung = holder.start({ name: 'other', output: 'log', argv: ['true'], walls })
    await expect(hung).rejects.toMatchObject({ code: 'DEADLINE_EXCEEDED' })
    expect((await exit).exit).toEqual(SIGKILL)
    expect(boottimeNs() - untilNs).toBeLessThan(LATE)
  })
})
