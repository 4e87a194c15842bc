import { spawnSync } from 'node:child_process'
import { chmodSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { EnsureInstanceRequest, State } from '../../../../src/gen/microvm/instance/v1/instance.ts'
import { StepRecord } from '../../../../src/gen/microvm/instance/v1/records.ts'
import { memoryRegistry } from '../../../../src/host/instance/registry/memory-registry.ts'
import { limitedDisks, throttleCommand } from '../../../../src/host/qemu/machine/disk-limits.ts'
import { machineArguments } from '../../../../src/host/qemu/machine/machine-arguments.ts'
import { provisionsFor } from '../../../../src/host/qemu/machine/provisions.ts'
import type { FileBackend } from '../../../../src/host/spec/spec.ts'
import { expanded } from '../../../support/host-wing/expansion.ts'
import { temporaryFolder } from '../../../support/temporary-folder.ts'
import { leftovers } from '../../../support/wing/leftovers.ts'
import { image, openReal } from '../../../support/wing/real-wing.ts'
import { ADMIN } from '../../../support/wing/requests.ts'

const READS = 12

/** How many times a second QEMU reads 4 KiB of a disk with these limits, once its first burst is over. */
function readsPerSecond(limits: NonNullable<FileBackend['limits']>, model: string): number {
  const path = image(temporaryFolder(), 'disk', 4)
  const machine = expanded({ storage: [{ source: 'disk', interface: model }], console: 'none' })
  const backends = { 'disk0-backend': { kind: 'file', path, access: 'read-write', limits } } as const
  const provide = provisionsFor(machine, backends, { ownFile: (name) => name })
  const words = machineArguments(machine, { acceleration: 'tcg', nowMs: 0, provide })
  const ask = (execute: string, own = {}) => `${JSON.stringify({ execute, arguments: own })}\n`
  const [disk] = limitedDisks(machine, backends)
  if (disk === undefined) throw new Error('no disk has limits')
  const { arguments: own, execute } = throttleCommand(disk)
  const read = ask('human-monitor-command', { 'command-line': `qemu-io -d ${disk.device} "read 0 4k"` })
  const input = ask('qmp_capabilities') + ask(execute, own) + read.repeat(READS) + ask('quit')
  const options = { input, timeout: 30_000, encoding: 'utf8' } as const
  const { stderr, stdout } = spawnSync('qemu-system-x86_64', [...words, '-qmp', 'stdio'], options)
  const rates = [...stdout.matchAll(/ ([\d.]+) ops\/sec/g)].map(([, rate]) => Number(rate))
  if (rates.length !== READS) throw new Error(`QEMU: ${stderr}${stdout}`)
  // A late one is followed by an early one.
  const seconds = rates.slice(READS / 2).reduce((sum, rate) => sum + 1 / rate, 0)
  return READS / 2 / seconds
}

describe('the limits of a disk', () => {
  it.each([
    [{ iopsTotal: 20 }, 'virtio-blk'],
    [{ bytesPerSecond: 20 * 4096 }, 'virtio-scsi'],
    [{ iopsTotal: 20, bytesPerSecond: 1 << 30 }, 'nvme'],
    [{ iopsTotal: 20 }, 'sata'],
  ])('are kept by QEMU: %j of %s', (limits, model) => {
    const rate = readsPerSecond(limits, model)
    expect(rate).toBeGreaterThan(5)
    // Without a limit it is hundreds.
    expect(rate).toBeLessThan(40)
  })

  it('are set at the start of an instance, and again when it is taken in', async () => {
    const folder = temporaryFolder()
    const path = image(folder, 'disk', 4)
    const catalogue = join(folder, 'catalogue.toml')
    const limits = 'limits = { iops = 100 }'
    writeFileSync(catalogue, `roots = ["${folder}"]\nvolumes.disk = { path = "${path}", ${limits} }`)
    chmodSync(catalogue, 0o600)
    const registry = memoryRegistry()
    const words = async () =>
      [...(await registry.load('steps'))].flatMap(([key, row]) =>
        key.includes('/throttle/') ? [StepRecord.decode(row).words] : [],
      )
    const storage = [{ source: 'disk', limits: { iopsTotal: 200, bytesPerSecond: 4096 } }]
    const document = JSON.stringify({ kind: 'VM', spec: { features: { memory: 64, storage } } })
    const request = EnsureInstanceRequest.fromPartial({ properties: { key: 'web' }, document })
    let instances = await openReal(folder, registry, { catalogue })
    await instances.ensure(request, ADMIN)
    const device = '/machine/peripheral/name-disk0/virtio-backend'
    expect(await words()).toEqual([['disk0-backend', device, '100', '4096']])
    await instances.close()
    instances = await openReal(folder, registry, { catalogue })
    expect((await instances.get('web', ADMIN)).state).toBe(State.PAUSED)
    await instances.remove('web', ADMIN)
    expect(await words()).toEqual([])
    await instances.close()
    expect(leftovers(folder)).toEqual([])
  })

  it('are none that is felt where they are high', () => {
    expect(readsPerSecond({ iopsTotal: 1_000_000 }, 'virtio-blk')).toBeGreaterThan(100)
  })
})
