import { spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'

import {
  cpSync,
  existsSync,
  mkdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  utimesSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { messageOf } from '../../../../src/base/errors.ts'
import { Any } from '../../../../src/gen/google/protobuf/any.ts'
import {
  ChangeStateRequest_Change as Change,
  Device,
  EnsureInstanceRequest,
  DeviceStatus_Plug as Plug,
  SnapshotRequest,
  State,
  SuspendInstanceRequest,
} from '../../../../src/gen/microvm/instance/v1/instance.ts'
import { Payload as Migration } from '../../../../src/gen/state/host/migration.ts'
import { Payload as Vm } from '../../../../src/gen/state/host/vm.ts'
import { memoryRegistry } from '../../../../src/host/instance/registry/memory-registry.ts'
import { factsOf } from '../../../../src/host/migration/memory-file.ts'
import { temporaryFolder } from '../../../support/temporary-folder.ts'
import { CountingMachines } from '../../../support/wing/counting-machine.ts'
import { leftovers } from '../../../support/wing/leftovers.ts'
import { DOCUMENT_LIFE } from '../../../support/wing/lives/document-life.ts'
import { documentLifePlan, image, openReal } from '../../../support/wing/real-wing.ts'
import { ADMIN, file, tenant } from '../../../support/wing/requests.ts'

const TIMEOUT_MS = 60_000

describe('a machine that is suspended', { timeout: TIMEOUT_MS }, () => {
  it('is a folder and nothing else, and goes on from there, with each byte once', async () => {
    const host = new CountingMachines()
    const made = await host.make()
    const saved = await host.suspend()
    expect(saved).toMatchObject({ name: 'one', key: 'web', resumedAs: '' })
    expect(saved.steps.map(({ name }) => name)).toEqual([
      'stop',
      'folder',
      'memory',
      'devices',
      'disks',
      'rings',
      'manifest',
    ])
    expect((await host.open()).list(ADMIN)).toEqual([])
    expect(leftovers(host.folder)).toEqual([])
    for (const name of ['memory', 'devices', 'manifest.json', 'state.binpb', 'console.ring'])
      expect(statSync(join(saved.folder, name)).mode & 0o777, name).toBe(0o600)
    // It is a sparse copy.
    expect(statSync(join(saved.folder, 'memory')).blocks * 512).toBeLessThan(16 * 2 ** 20)
    const again = await host.suspend({}, { ...ADMIN, isRepeated: true })
    expect(again.id).toBe(saved.id)
    await host.leave()
    expect(await host.resume()).toMatchObject({ state: State.RUNNING, reboots: 0, bootId: made.bootId })
    const { end } = await host.told()
    await host.counted('web', 300)
    expect((await host.told()).end).toBeGreaterThan(end)
    expect(existsSync(join(saved.folder, 'memory'))).toBe(false)
    // The call is repeated, as after the death of the daemon.
    expect(await host.resume()).toMatchObject({ state: State.RUNNING })
    await expect(host.resume({}, 'other')).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
      message: `${saved.folder}: was resumed already, as instance web: its guest must not run twice`,
    })
    await host.suspend()
    await host.resume()
    await host.counted('web', 300)
    await host.told()
    await host.end()
    expect(leftovers(host.folder)).toEqual([])
  })

  it('takes the layers of its snapshots along, to other folders and another disk too', async () => {
    const [host, other] = [new CountingMachines(), new CountingMachines()]
    await host.make()
    const instances = await host.open()
    await instances.snapshot(SnapshotRequest.fromPartial({ key: 'web', name: 'before' }), ADMIN)
    const folder = join(temporaryFolder(), 'saved')
    await host.suspend({ folder })
    const path = join(other.disks, 'copy')
    cpSync(join(host.disks, 'root'), path)
    const replaceComponents = { 'root-file': file(path) }
    await expect(other.resume({ folder, replaceComponents: { other: file(path) } })).rejects.toMatchObject({
      message: 'saved.replace_components.other: no such backend, only backends can be replaced',
    })
    await other.resume({ folder, replaceComponents })
    await other.counted('web', 300)
    await other.told()
    const { layers, snapshots } = await (await other.open()).snapshots('web', ADMIN)
    expect([layers.map(({ base }) => base), snapshots.map(({ name }) => name)]).toEqual([[path], ['before']])
    await (await other.open()).removeSnapshot({ key: 'web', name: 'before', all: false }, ADMIN)
    await host.end()
    await other.end()
    expect([...leftovers(host.folder), ...leftovers(other.folder)]).toEqual([])
  })

  it('is not taken in when a file is cut, flipped, missing, another one, or of another host', async () => {
    const host = new CountingMachines()
    await host.make()
    const { folder } = await host.suspend()
    const kept = join(temporaryFolder(), 'kept')
    cpSync(folder, kept, { recursive: true })
    const refused = async (change: () => void, text: string) => {
      change()
      await expect(host.resume(), text).rejects.toMatchObject({
        code: 'FAILED_PRECONDITION',
        message: expect.stringContaining(text),
      })
      expect((await host.open()).list(ADMIN), text).toEqual([])
      rmSync(folder, { recursive: true })
      cpSync(kept, folder, { recursive: true })
    }
    const at = (name: string) => join(folder, name)
    for (const name of ['memory', 'devices', 'state.binpb', 'console.ring']) {
      await refused(() => rmSync(at(name)), `${at(name)}: missing`)
      await refused(() => truncateSync(at(name), 100), `${at(name)}: 100 bytes, want`)
      await refused(() => flip(at(name)), `${at(name)}: damaged: its digest is another one`)
    }
    const manifest = (change: (text: string) => string) => () => {
      const path = at('manifest.json')
      writeFileSync(path, withDigest(change(readFileSync(path, 'utf8'))))
    }
    await refused(
      manifest((text) => text.slice(0, 100)),
      'manifest.json: damaged',
    )
    await refused(
      () =>
        writeFileSync(
          at('manifest.json'),
          readFileSync(at('manifest.json'), 'utf8').replace('"running"', '"paused"'),
        ),
      'manifest.json: damaged: its digest is another one',
    )
    const passwd = join(temporaryFolder(), 'passwd')
    await refused(
      () => {
        cpSync(at('console.ring'), passwd)
        rmSync(at('console.ring'))
        symlinkSync(passwd, at('console.ring'))
      },
      `${at('console.ring')}: want a file of its own, no link`,
    )
    await refused(
      manifest((text) => text.replace('"version":1', '"version":2')),
      'manifest.json: version 2, want 1',
    )
    const envelope = Any.decode(readFileSync(at('state.binpb')))
    const payload = Migration.decode(envelope.value)
    const vm = Vm.decode(payload.vm?.value ?? new Uint8Array())
    const typeUrl = payload.vm?.typeUrl ?? ''
    payload.vm = { typeUrl, value: Vm.encode({ ...vm, schemaVersion: 2 }).finish() }
    const later = join(temporaryFolder(), 'state')
    writeFileSync(later, Any.encode({ ...envelope, value: Migration.encode(payload).finish() }).finish())
    const facts = await factsOf(later)
    await refused(
      () => {
        cpSync(later, at('state.binpb'))
        manifest((text) => {
          const { files, ...rest } = JSON.parse(text)
          return JSON.stringify({ ...rest, files: { ...files, 'state.binpb': facts } })
        })()
      },
      `${at('state.binpb')}: vm: type ${typeUrl}, version 2: unknown, want ${typeUrl}, version 1`,
    )
    await refused(
      manifest((text) => text.replace('QEMU 7.', 'QEMU 6.')),
      'saved with qemu QEMU 6.',
    )
    await refused(
      manifest((text) => text.replace('"acceleration":"tcg"', '"acceleration":"kvm"')),
      'saved with acceleration kvm, this host has tcg',
    )
    await refused(
      manifest((text) => text.replace('"cpu":""', '"cpu":"GenuineIntel/6"')),
      'saved with cpu GenuineIntel/6, this host has (none)',
    )
    const root = join(host.disks, 'root')
    const { mtime } = statSync(root)
    await refused(
      () => writeFileSync(root, 'x', { flag: 'r+' }),
      `${root}: was written since the machine was saved`,
    )
    utimesSync(root, mtime, mtime)
    const kernel = join(host.disks, 'count.kernel')
    await refused(() => flip(kernel), `board.kernel: ${kernel}: another file than the machine was saved with`)
    await expect(host.resume({ name: 'two' })).rejects.toMatchObject({ code: 'NOT_FOUND' })
    // All as it was: the time of a disk has nanoseconds, which utimes loses.
    await (await host.open()).deleteSaved('one', ADMIN)
    expect(await (await host.open()).listSaved(ADMIN)).toEqual([])
    await host.leave()
  })

  it('of a document has the machine that ran, with what was plugged in', async () => {
    const folder = temporaryFolder()
    const plan = documentLifePlan(join(folder, 'images'))
    const instances = await openReal(folder, memoryRegistry(), { catalogue: plan.catalogue })
    await DOCUMENT_LIFE.ensure?.(instances, plan)
    await DOCUMENT_LIFE.plugDisk?.(instances, plan)
    await instances.changeState({ key: 'web', change: Change.RUN, graceMs: 0 }, ADMIN)
    const { configurations } = await instances.get('web', ADMIN)
    const suspend = { key: 'web', name: 'one', withoutAgent: true }
    await instances.suspend(SuspendInstanceRequest.fromPartial(suspend), ADMIN)
    const request = EnsureInstanceRequest.fromPartial({ properties: { key: 'web' }, saved: { name: 'one' } })
    const catalogue = readFileSync(plan.catalogue, 'utf8')
    const other = image(join(folder, 'images'), 'another', 16)
    const root = join(folder, 'images', 'root')
    writeFileSync(plan.catalogue, catalogue.replace(`"${root}"`, `"${other}"`))
    await expect(instances.ensure(request, ADMIN)).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
      message:
        'spec.features.storage[0].source: another disk by now, want the one that the machine was saved with',
    })
    writeFileSync(plan.catalogue, catalogue)
    const resumed = await instances.ensure(request, ADMIN)
    expect([resumed.state, resumed.configurations?.current]).toEqual([State.RUNNING, configurations?.current])
    await instances.remove('web', ADMIN)
    await instances.close()
    expect(leftovers(folder)).toEqual([])
  })

  it('goes on when its guest keeps the device that has to leave, which comes back once it has gone', async () => {
    const host = new CountingMachines()
    await host.make('web', {
      board: { machine: 'pc-i440fx-7.2' },
      devices: { vsock: Device.fromPartial({ backend: 'socket', slot: 6, vsock: {} }) },
      backends: { socket: { vsockDaemon: {} } },
    })
    const instances = await host.open()
    const plugged = async () => (await instances.get('web', ADMIN)).devices.vsock?.plug
    await expect(host.suspend({ withoutAgent: true })).rejects.toMatchObject({
      code: 'DEADLINE_EXCEEDED',
      message: 'unplug: device vsock: the guest did not let it go within 10000 ms',
    })
    await host.counted('web', 300)
    await host.told()
    expect(await plugged()).toBe(Plug.LEAVING)
    await expect(host.suspend({ withoutAgent: true })).rejects.toMatchObject({
      message: 'devices.vsock: leaving the machine',
    })
    // QEMU takes it away.
    await host.change(Change.RESET)
    await expect.poll(plugged, { timeout: 20_000 }).toBe(Plug.PRESENT)
    expect((await instances.get('web', ADMIN)).specification?.devices.vsock).toMatchObject({ slot: 6 })
    await host.end()
    expect(leftovers(host.folder)).toEqual([])
  })

  it('that is paused has its disks again when it is not saved, and is saved later', async () => {
    const host = new CountingMachines()
    await host.make()
    await host.change(Change.PAUSE)
    host.atStep = async (_, at) => {
      if (at === 'manifest') throw new Error('asked for')
    }
    await expect(host.suspend()).rejects.toThrow('asked for')
    const write = () => spawnSync('qemu-io', ['-f', 'raw', '-c', 'write 0 512', join(host.disks, 'root')])
    expect(write().stderr.toString()).toMatch(/Failed to get .*lock/)
    expect((await (await host.open()).get('web', ADMIN)).state).toBe(State.PAUSED)
    host.atStep = async () => {}
    await host.suspend()
    expect(await host.resume()).toMatchObject({ state: State.PAUSED })
    await host.change(Change.RUN)
    await host.counted('web', 300)
    await host.told()
    await host.end()
  })

  it('shares its disks with nobody while it is saved', async () => {
    const host = new CountingMachines()
    await host.make()
    const root = join(host.disks, 'root')
    const started: unknown[] = []
    host.atStep = async (_, at) => {
      if (at !== 'rings') return
      const instances = await host.open()
      started.push(await instances.ensure(host.request('other'), ADMIN).catch(messageOf))
      writeFileSync(root, 'x', { flag: 'r+' })
    }
    await expect(host.suspend()).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
      message: `manifest: backends.root-file.file.path: ${root}: another has written it meanwhile`,
    })
    const field = 'backends.root-file.file.path'
    expect(started).toEqual([`${field}: ${root}: instance web is being saved or loaded with it`])
    await host.counted('web', 300)
    await host.end()
  })

  it('is refused by name, and goes on, where something of it cannot be saved', async () => {
    const host = new CountingMachines()
    await host.make()
    await host.suspend()
    await host.make('next')
    await expect(host.suspend({ key: 'next' })).rejects.toMatchObject({ code: 'ALREADY_EXISTS' })
    await (await host.open()).deleteSaved('one', ADMIN)
    await expect(host.suspend({ key: 'gone' })).rejects.toMatchObject({ code: 'NOT_FOUND' })
    const full = join(temporaryFolder(), 'file')
    writeFileSync(full, '')
    await expect(host.suspend({ key: 'next', folder: join(full, 'saved') })).rejects.toMatchObject({
      message: expect.stringMatching(/^\/.*ENOTDIR/),
    })
    await host.counted('next', 300)
    await host.told('next')
    for (const step of ['memory', 'devices', 'manifest']) {
      host.atStep = async (_, at) => {
        if (at === step) throw new Error('asked for')
      }
      await expect(host.suspend({ key: 'next' })).rejects.toThrow('asked for')
      await host.counted('next', 300)
      await host.told('next')
      expect(await (await host.open()).listSaved(ADMIN)).toEqual([])
    }
    host.atStep = async () => {}
    const nvme = { backend: 'fast-file', slot: 7, disk: { serial: 'fast', nvme: true } }
    await host.make('fast', {
      devices: { fast: Device.fromPartial(nvme) },
      backends: {
        'fast-file': file(image(host.disks, 'fast', 16)),
        'root-file': file(image(host.disks, 'other', 16)),
      },
    })
    await expect(host.suspend({ key: 'fast' })).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
      message: 'devices.fast: an NVMe disk cannot be saved, want a virtio one',
    })
    await host.end()
    mkdirSync(join(host.folder, 'saved'), { recursive: true })
    expect(await (await host.open()).listSaved(tenant('anne'))).toEqual([])
    await host.leave()
    expect(leftovers(host.folder)).toEqual([])
  })
})

/** The manifest as one who knows its form would write it. */
function withDigest(text: string): string {
  try {
    const { digest: _, ...manifest } = JSON.parse(text)
    const digest = createHash('sha256').update(JSON.stringify(manifest)).digest('hex')
    return JSON.stringify({ ...manifest, digest })
  } catch {
    return text
  }
}

/** Changes one bit in a byte that is not zero. */
function flip(path: string): void {
  const bytes = readFileSync(path)
  const at = bytes.findIndex((byte) => byte !== 0)
  bytes[at] = (bytes[at] ?? 0) ^ 1
  writeFileSync(path, bytes)
}
