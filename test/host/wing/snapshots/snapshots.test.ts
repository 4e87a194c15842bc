import { execFileSync } from 'node:child_process'
import { linkSync, mkdirSync, readFileSync, rmSync, symlinkSync, truncateSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import {
  ChangeStateRequest_Change as Change,
  Snapshot_Consistency as Consistency,
  Device,
  Layer,
  PlugRequest,
  SnapshotRequest,
  State,
} from '../../../../src/gen/microvm/instance/v1/instance.ts'
import { refuseBases } from '../../../../src/host/instance/devices/disk-in-use.ts'
import { temporaryFolder } from '../../../support/temporary-folder.ts'
import { LayeredDisks } from '../../../support/wing/layered-disks.ts'
import { image } from '../../../support/wing/real-wing.ts'
import { ADMIN, ensureRequest, file } from '../../../support/wing/requests.ts'

describe('snapshots of the disks of a real machine', () => {
  it('keep the bytes of one moment, which a revert brings back', async () => {
    const machine = new LayeredDisks()
    await machine.make()
    await machine.write('root', [0, 1])
    await machine.write('data', [0, 11])
    expect(await machine.snapshot('one')).toMatchObject({
      name: 'one',
      consistency: Consistency.CRASH,
      stillUs: 0n,
      disks: [
        { device: 'root', backend: 'root-file', layer: 0 },
        { device: 'data', backend: 'data-file', layer: 0 },
      ],
    })
    await machine.write('root', [0, 2], [1, 2])
    expect(await machine.snapshot('two', 'root')).toMatchObject({ disks: [{ device: 'root', layer: 1 }] })
    await machine.write('root', [0, 3])
    await machine.write('data', [0, 12])
    await machine.stop()
    expect(await machine.bytes('root')).toEqual([3, 2, 0, 0])
    expect(await machine.bytes('data')).toEqual([12, 0, 0, 0])
    await machine.change(Change.RUN)
    await machine.change(Change.PAUSE)
    await machine.write('root', [2, 4])
    await machine.stop()
    expect(await machine.bytes('root')).toEqual([3, 2, 4, 0])
    expect(await machine.revert('two')).toMatchObject({ state: State.STOPPED })
    expect(await machine.bytes('root')).toEqual([2, 2, 0, 0])
    expect(await machine.bytes('data')).toEqual([12, 0, 0, 0])
    await machine.revert('one')
    expect(await machine.bytes('root')).toEqual([1, 0, 0, 0])
    expect(await machine.bytes('data')).toEqual([11, 0, 0, 0])
    await machine.change(Change.RUN)
    await machine.change(Change.PAUSE)
    await machine.write('root', [3, 5])
    await machine.stop()
    expect(await machine.bytes('root')).toEqual([1, 0, 0, 5])
    expect(machine.bytesOf('root', 1, await machine.layers())).toEqual([2, 2, 0, 0])
    expect(readFileSync(join(machine.disks, 'root'))[0]).toBe(1)
    expect(await machine.remove()).toEqual([])
  })

  it('stop a guest that runs for a moment, and let it go on', async () => {
    const machine = new LayeredDisks()
    await machine.make()
    await machine.change(Change.RUN)
    const { stillUs } = await machine.snapshot('one')
    expect(Number(stillUs)).toBeGreaterThan(0)
    expect(Number(stillUs)).toBeLessThan(1_000_000)
    const get = async () => (await machine.open()).get('web', ADMIN)
    expect(await get()).toMatchObject({
      state: State.RUNNING,
      backends: { 'root-file': { node: 'layer-1' } },
    })
    await machine.leave()
    expect(await get()).toMatchObject({
      state: State.RUNNING,
      backends: { 'root-file': { node: 'layer-1' } },
    })
    expect(await machine.remove()).toEqual([])
  })

  it('are taken of a stopped instance too', async () => {
    const machine = new LayeredDisks()
    await machine.make()
    await machine.stop()
    expect(await machine.snapshot('one')).toMatchObject({ consistency: Consistency.STOPPED_MACHINE })
    await machine.change(Change.RUN)
    await machine.change(Change.PAUSE)
    await machine.write('root', [0, 1])
    await machine.stop()
    expect(await machine.bytes('root')).toEqual([1, 0, 0, 0])
    expect(readFileSync(join(machine.disks, 'root'))[0]).toBe(0)
    expect(await machine.remove()).toEqual([])
  })

  it('refuse a start with a layer that is gone or foreign, and with a disk that shrank', async () => {
    const machine = new LayeredDisks()
    await machine.make()
    await machine.snapshot('one')
    await machine.snapshot('two')
    await machine.stop()
    const path = join(machine.disks, 'data')
    truncateSync(path, 8 * 2 ** 20)
    await expect(machine.change(Change.RUN)).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
      message: `backends.data-file.file.path: ${path} has 8388608 bytes, want at least 16777216: snapshots are on it`,
    })
    truncateSync(path, 16 * 2 ** 20)
    const middle = join(machine.own, 'disks/1.qcow2')
    rmSync(middle)
    await expect(machine.change(Change.RUN)).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
      message: `backends.root-file: layer 1: ${middle}: missing, want the file with what was written since a snapshot`,
    })
    expect(await machine.remove()).toEqual([])
  })

  it('refuse what would lose or change what they have', async () => {
    const machine = new LayeredDisks()
    await machine.make()
    const instances = await machine.open()
    await expect(machine.snapshot('none', 'port')).rejects.toMatchObject({
      code: 'NOT_FOUND',
      message: 'devices.port: no disk',
    })
    await machine.snapshot('one', 'data')
    await expect(machine.snapshot('one')).rejects.toMatchObject({ code: 'ALREADY_EXISTS' })
    const other = file(image(machine.disks, 'other', 16))
    const replaced = instances.replaceBackend({ key: 'web', backendKey: 'data-file', backend: other }, ADMIN)
    const layered = 'backends.data-file: snapshots are on it, want them removed first (RemoveSnapshot)'
    await expect(replaced).rejects.toMatchObject({ code: 'FAILED_PRECONDITION', message: layered })
    const unplugged = instances.unplug({ key: 'web', deviceKey: 'data', graceMs: 1 }, ADMIN)
    await expect(unplugged).rejects.toMatchObject({ code: 'FAILED_PRECONDITION', message: layered })
    const path = join(machine.disks, 'data')
    const second = { specification: { backends: { 'root-file': file(path) } } }
    await expect(instances.ensure(ensureRequest('second', second), ADMIN)).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
      message: `backends.root-file.file.path: ${path}: snapshots of instance web are on it`,
    })
    for (const [name, link] of [
      ['soft', symlinkSync],
      ['hard', linkSync],
    ] as const) {
      const other = join(machine.disks, name)
      link(path, other)
      const asked = { specification: { backends: { 'root-file': file(other) } } }
      await expect(instances.ensure(ensureRequest(name, asked), ADMIN)).rejects.toMatchObject({
        message: `backends.root-file.file.path: ${other}: snapshots of instance web are on it`,
      })
    }
    await expect(machine.revert('one')).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
      message: 'instance web: not stopped, want it stopped',
    })
    const quiesced = SnapshotRequest.fromPartial({ key: 'web', name: 'two', quiesce: true })
    await expect(instances.snapshot(quiesced, ADMIN)).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
      message: 'quiesce: the machine is paused, want it running',
    })
    expect(machine.files).toEqual(['1.qcow2'])
    expect(await machine.remove()).toEqual([])
  })

  it('refuse a revert to a configuration without a disk that has others', async () => {
    const machine = new LayeredDisks()
    await machine.make()
    const instances = await machine.open()
    await machine.snapshot('one', 'root')
    const path = image(machine.disks, 'later', 16)
    const device = Device.fromPartial({ backend: 'later-file', port: 'port', disk: { serial: 'later' } })
    const plugged = { key: 'web', deviceKey: 'later', device, backend: file(path) }
    await instances.plug(PlugRequest.fromPartial(plugged), ADMIN)
    await machine.snapshot('two', 'later')
    await machine.stop()
    const before = await machine.layers()
    await expect(machine.revert('one')).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
      message: `backends.later-file: ${path}: not in snapshot one, and snapshots are on it, want them removed first (RemoveSnapshot)`,
    })
    expect(await machine.layers()).toEqual(before)
    await machine.rm('two')
    await machine.revert('one')
    expect(await machine.remove()).toEqual([])
  })

  it('of a stopped instance are refused while another one may write the file', async () => {
    const machine = new LayeredDisks()
    const { specification: { board } = {} } = await machine.make()
    const instances = await machine.open()
    await machine.stop()
    const path = join(machine.disks, 'hard')
    linkSync(join(machine.disks, 'data'), path)
    const second = ensureRequest('second', {
      specification: { board, backends: { 'root-file': file(path) } },
    })
    await instances.ensure(second, ADMIN)
    const base = join(machine.disks, 'data')
    await expect(machine.snapshot('one')).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
      message: `backends.data-file.file.path: ${base}: instance second may write it, want it stopped`,
    })
    await machine.snapshot('root', 'root')
    await instances.changeState({ key: 'second', change: Change.KILL, graceMs: 0 }, ADMIN)
    // Whichever is the first, the other one is refused.
    const start = instances.changeState({ key: 'second', change: Change.RUN, graceMs: 0 }, ADMIN)
    const [taken, started] = await Promise.allSettled([machine.snapshot('one', 'data'), start])
    expect([taken.status, started.status].toSorted()).toEqual(['fulfilled', 'rejected'])
    await instances.changeState({ key: 'second', change: Change.KILL, graceMs: 0 }, ADMIN)
    if (taken.status === 'rejected') await machine.snapshot('one', 'data')
    const layered = { message: expect.stringContaining(`${path}: snapshots of instance web are on it`) }
    const request = SnapshotRequest.fromPartial({ key: 'second', name: 'two' })
    await expect(instances.snapshot(request, ADMIN)).rejects.toMatchObject(layered)
    const device = Device.fromPartial({ backend: 'more-file', port: 'port', disk: { serial: 'more' } })
    const third = ensureRequest('third', {
      specification: { board, backends: { 'root-file': file(image(machine.disks, 'third', 8)) } },
    })
    await instances.ensure(third, ADMIN)
    const plugged = { key: 'third', deviceKey: 'more', device, backend: file(path) }
    await expect(instances.plug(PlugRequest.fromPartial(plugged), ADMIN)).rejects.toMatchObject(layered)
    const replaced = { key: 'third', backendKey: 'root-file', backend: file(path) }
    await expect(instances.replaceBackend(replaced, ADMIN)).rejects.toMatchObject(layered)
    for (const key of ['second', 'third']) await instances.remove(key, ADMIN)
    expect(await machine.remove()).toEqual([])
  })

  it('leave a layer alone that the record does not have', async () => {
    const machine = new LayeredDisks()
    await machine.make()
    mkdirSync(join(machine.own, 'disks'))
    const path = join(machine.own, 'disks/1.qcow2')
    writeFileSync(path, 'written')
    await expect(machine.snapshot('one')).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
      message: `${path}: a layer of a snapshot that the record of the instance does not have`,
    })
    expect(readFileSync(path, 'utf8')).toBe('written')
    expect(await machine.remove()).toEqual([])
  })

  it('are known below each node of a block device', () => {
    const folder = temporaryFolder()
    const [one, same, other] = ['one', 'same', 'other'].map((name) => join(folder, name))
    if (one === undefined || same === undefined || other === undefined) throw new Error('no names')
    for (const [path, minor] of [
      [one, '250'],
      [same, '250'],
      [other, '251'],
    ] as const)
      execFileSync('mknod', [path, 'b', '7', minor])
    const layers = [Layer.fromPartial({ id: 1, base: one })]
    expect(() => refuseBases({ disk: file(same) }, layers, 'instance web')).toThrow(`${same}: snapshots of`)
    expect(() => refuseBases({ disk: file(other) }, layers, 'instance web')).not.toThrow()
  })
})
