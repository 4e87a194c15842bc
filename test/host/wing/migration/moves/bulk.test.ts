import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it, vi } from 'vitest'
import { neverAborted } from '../../../../../src/base/abort.ts'
import { AgentError } from '../../../../../src/base/errors.ts'
import type { BulkProgress } from '../../../../../src/host/migration/bulk/bulk.ts'
import { openIncoming } from '../../../../../src/host/migration/bulk/incoming.ts'
import { openOutgoing } from '../../../../../src/host/migration/bulk/outgoing.ts'
import { bulkSettings } from '../../../../../src/host/migration/bulk/settings.ts'
import { TestHolders } from '../../../../support/host/test-holder.ts'
import {
  type BulkMachine,
  checkNumbers,
  lastNumber,
  startBulkMachine,
  wholeMemory,
} from '../../../../support/wing/moves/bulk-machines.ts'
import {
  checkGoesOn,
  openSource,
  SOURCE_STEPS,
  startTarget,
} from '../../../../support/wing/moves/bulk-moves.ts'

const holders = new TestHolders()

/** The guest of a target runs, and goes on from the source's last number. */
async function checkArrived(target: BulkMachine): Promise<void> {
  const before = await checkNumbers(target)
  expect(before).toBeGreaterThan(0)
  await target.qmp.execute('cont', {}, neverAborted)
  await expect.poll(() => lastNumber(target)).toBeGreaterThan(before)
  await target.qmp.execute('stop', {}, neverAborted)
  await checkNumbers(target)
}

describe('the bulk of a move', () => {
  it('carries disk and memory of a guest that writes both all the time, over TLS', async () => {
    const source = await startBulkMachine(holders)
    const { incoming, target } = await startTarget(holders)
    const told: BulkProgress[] = []
    // Long enough for the guest to write again what was sent already.
    const settings = { bandwidthBytesPerSecond: 8 * 2 ** 20 }
    const outgoing = await openSource(source, incoming, { settings, onProgress: (each) => told.push(each) })
    await outgoing.copyDisks()
    const ranAt = source.qmp
      .event(({ name }) => name === 'RESUME', neverAborted)
      .then(() => lastNumber(source))
    await outgoing.sendMemory()
    expect(await lastNumber(source)).toBeGreaterThan(await ranAt)
    await outgoing.endDisks()
    expect(readFileSync(target.path).equals(readFileSync(source.path))).toBe(true)
    await outgoing.endMemory()
    await incoming.arrived
    await incoming.endDisks()
    outgoing.finish()
    expect(await source.qmp.execute('query-status', {}, neverAborted)).toMatchObject({
      status: 'postmigrate',
    })
    expect(await lastNumber(target)).toBe(await lastNumber(source))
    await checkArrived(target)
    expect(told.some((each) => 'memory' in each && each.memory.totalBytes > 64 * 2 ** 20)).toBe(true)
  })

  it('carries the memory of a guest that reboots while it is sent', async () => {
    const source = await startBulkMachine(holders)
    const { incoming, target } = await startTarget(holders)
    const outgoing = await openSource(source, incoming, {
      settings: { bandwidthBytesPerSecond: 8 * 2 ** 20 },
    })
    await outgoing.copyDisks()
    const rebooted = source.qmp
      .event(({ name }) => name === 'RESUME', neverAborted)
      .then(() => source.qmp.command({ execute: 'system_reset', arguments: {} }, neverAborted))
    await outgoing.sendMemory()
    await rebooted
    for (const step of ['endDisks', 'endMemory'] as const) await outgoing[step]()
    await incoming.arrived
    await incoming.endDisks()
    outgoing.finish()
    const [there, here] = [await wholeMemory(target), await wholeMemory(source)]
    expect(there.equals(here)).toBe(true)
    await target.qmp.execute('cont', {}, neverAborted)
    const before = await lastNumber(target)
    await expect.poll(() => lastNumber(target)).not.toBe(before)
  })

  it('gives the connection itself to a QEMU whose holder is of an earlier version', async () => {
    const source = await startBulkMachine(holders)
    const { incoming } = await startTarget(holders)
    const relay = vi
      .spyOn(source.holder, 'relay')
      .mockRejectedValue(new AgentError('UNIMPLEMENTED', 'holder: command "relay": unknown'))
    const outgoing = await openSource(source, incoming)
    await outgoing.copyDisks()
    expect(relay).toHaveBeenCalledOnce()
    await outgoing.close()
    await checkGoesOn(source)
    await incoming.close()
  })

  it('takes unix sockets without certificates on one machine, and no TCP without any', async () => {
    const source = await startBulkMachine(holders)
    const target = await startBulkMachine(holders, { isIncoming: true })
    const incoming = await openIncoming(target, { disks: [target.disk], listen: { folder: source.folder } })
    const options = {
      disks: [source.disk],
      settings: bulkSettings(),
      tls: undefined,
      wasRunning: true,
      signal: neverAborted,
    }
    const tcp = { host: '127.0.0.1', port: 1 }
    await expect(
      openOutgoing(source, { ...options, endpoints: { disks: tcp, memory: tcp } }),
    ).rejects.toMatchObject({
      ...{ code: 'FAILED_PRECONDITION', message: '127.0.0.1:1: TCP without certificates' },
    })
    const outgoing = await openOutgoing(source, { ...options, endpoints: incoming })
    for (const step of SOURCE_STEPS) await outgoing[step]()
    await incoming.arrived
    await incoming.endDisks()
    outgoing.finish()
    await checkArrived(target)
  })

  it('refuses disks of other sizes on either side, and leaves nothing', async () => {
    const source = await startBulkMachine(holders)
    const [smaller, larger] = [{ diskMib: 15 }, { diskMib: 17 }]
    for (const { diskMib } of [smaller, larger])
      await expect(startTarget(holders, { diskMib, disks: [source.disk] })).rejects.toMatchObject({
        code: 'FAILED_PRECONDITION',
        message: `disk disk: has ${diskMib * 2 ** 20} bytes, want ${16 * 2 ** 20}`,
      })
    const { incoming, target } = await startTarget(holders, smaller)
    const disks = [target.disk]
    const wrong = openOutgoing(source, {
      ...{ disks, endpoints: incoming, settings: bulkSettings(), tls: undefined },
      ...{ wasRunning: true, signal: neverAborted },
    })
    await expect(wrong).rejects.toMatchObject({ code: 'FAILED_PRECONDITION', message: /^disk disk: has/ })
    await checkGoesOn(source)
    await incoming.close()
    expect(readFileSync(join(target.folder, 'qemu.log'), 'utf8')).toBe('')
  })
})
