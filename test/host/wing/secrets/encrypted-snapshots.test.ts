import { randomBytes } from 'node:crypto'
import { copyFileSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { neverAborted } from '../../../../src/base/abort.ts'
import { jsonLogger } from '../../../../src/base/log.ts'
import {
  Backend,
  ChangeStateRequest_Change as Change,
  Device,
  EnsureInstanceRequest,
  File_Access,
  SnapshotRequest,
} from '../../../../src/gen/microvm/instance/v1/instance.ts'
import { openRegistry } from '../../../../src/host/instance/registry/open-registry.ts'
import { connectQmp } from '../../../../src/host/qemu/qmp/connect.ts'
import { openSecrets } from '../../../../src/host/secrets/secrets.ts'
import { temporaryFolder } from '../../../support/temporary-folder.ts'
import { BLOCK, decryptedByte, io } from '../../../support/wing/layer-bytes.ts'
import { leftovers } from '../../../support/wing/leftovers.ts'
import { image, openReal } from '../../../support/wing/real-wing.ts'
import { ADMIN, ensureRequest, file } from '../../../support/wing/requests.ts'
import { luksImage } from './luks-image.ts'
import { commandLines, filesWith } from './search.ts'

const UUID = '6b3f0c62-3d1e-4f0a-9a55-0f4f8f0c2d11'
const key = 'web'

describe('snapshots of an encrypted disk', () => {
  const value = `value-${randomBytes(12).toString('hex')}`
  const luks = luksImage(join(temporaryFolder(), 'luks'), 8, value)

  it('keep what the guest wrote, and have none of it in clear', async () => {
    const web = await encryptedDisks('specification', luks, value)
    await web.ensure()
    await web.write(0x11)
    await web.snapshot('running')
    expect(await web.layers()).toMatchObject([
      { sizeBytes: 8n << 20n, secret: UUID },
      { sizeBytes: 8n << 20n, secret: '' },
    ])
    await web.write(0x22)
    await web.to(Change.KILL)
    // What a layer of the other disk has is found, so it would be here.
    expect(web.layersWith(0x22)).toEqual(['2.qcow2'])
    expect(web.has(await web.layers())).toBe(0x22)
    await web.secrets.remove('', UUID)
    await web.snapshot('stopped')
    await expect(web.to(Change.RUN)).rejects.toMatchObject({
      message: expect.stringContaining(`secret ${UUID}: not found`),
    })
    await web.secrets.set('', UUID, Buffer.from(value))
    await web.to(Change.RUN)
    await web.write(0x33)
    const told = commandLines(web.folder)
    expect(told.filter((text) => text.includes('qemu-system'))).toHaveLength(1)
    await web.to(Change.KILL)
    expect([0x11, 0x22, 0x33].map(web.layersWith)).toEqual([[], ['2.qcow2'], ['4.qcow2']])
    for (const [name, byte] of [
      ['running', 0x11],
      ['stopped', 0x22],
    ] as const) {
      await web.revert(name)
      expect(web.has(await web.layers())).toBe(byte)
      await web.to(Change.RUN)
      await web.to(Change.KILL)
    }
    await web.to(Change.RUN)
    await web.write(0x44)
    await web.snapshot('last')
    await web.write(0x55)
    await web.removeAll()
    expect(await web.layers()).toEqual([])
    await web.to(Change.KILL)
    expect([web.has([]), web.inClear(0x55)]).toEqual([0x55, false])
    const isTold = (text: string) => [...told, ...web.log].some((line) => line.includes(text))
    expect([isTold(web.folder), isTold(value), isTold(base64(value))]).toEqual([true, false, false])
    expect(filesWith(web.folder, base64(value))).toEqual([])
    expect(filesWith(web.folder, value)).toEqual([
      join(web.folder, 'key'),
      join(web.folder, 'secrets/admin', UUID),
    ])
    expect(await web.remove()).toEqual([])
  })

  it('are merged while it is stopped, by a secret that is there', async () => {
    const web = await encryptedDisks('specification', luks, value)
    await web.ensure()
    await web.snapshot('one')
    await web.write(0x66)
    await web.to(Change.KILL)
    await web.secrets.remove('', UUID)
    await expect(web.removeAll()).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
      message: `backends.safe-file.file.encryption.secret: secret ${UUID}: not found, want it set before (./microvm secret)`,
    })
    expect(await web.layers()).toHaveLength(2)
    await web.secrets.set('', UUID, Buffer.from('another'))
    await expect(web.removeAll()).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
      message: `backends.safe-file.file.encryption.secret: ${UUID} does not open ${web.disk}`,
    })
    await web.secrets.set('', UUID, Buffer.from(value))
    await web.removeAll()
    expect(await web.layers()).toEqual([])
    expect(web.has([])).toBe(0x66)
    expect(web.log.some((line) => line.includes(base64(value)))).toBe(false)
    for (let count = 1; count <= 8; count++) await web.snapshot(`s${count}`)
    await expect(web.snapshot('last')).rejects.toMatchObject({
      code: 'RESOURCE_EXHAUSTED',
      message: 'devices.safe: 8 layers of snapshots, want fewer',
    })
    await web.to(Change.RUN)
    expect(await web.remove()).toEqual([])
  })

  it('of a document are refused without its secret, and merged while it runs', async () => {
    const web = await encryptedDisks('document', luks, value)
    await web.ensure()
    await web.to(Change.KILL)
    await web.snapshot('one')
    await web.to(Change.RUN)
    await web.write(0x77)
    expect(web.layersWith(0x77)).toEqual(['2.qcow2'])
    await web.to(Change.KILL)
    expect(web.has(await web.layers())).toBe(0x77)
    web.catalogue('')
    await expect(web.to(Change.RUN)).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
      message: `backends.safe-backend.file.encryption: none, want secret ${UUID}: snapshots are on that`,
    })
    web.catalogue()
    // Of its first key, which another secret would have made.
    const key = web.changeLayer(1, 4 * BLOCK + 4096)
    await expect(web.to(Change.RUN)).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
      message: `backends.safe-backend.file.encryption.secret: ${UUID} does not open layer 1, want the one at the time of its snapshot`,
    })
    web.changeLayer(1, 4 * BLOCK + 4096, key)
    await web.to(Change.RUN)
    await web.removeAll()
    await web.to(Change.KILL)
    expect(web.has([])).toBe(0x77)
    expect(await web.remove()).toEqual([])
  })
})

/** An instance with an encrypted disk `safe`, and a plain one `open`, both of 8 MiB. */
async function encryptedDisks(kind: 'specification' | 'document', luks: string, value: string) {
  const folder = temporaryFolder()
  const [disk, plain] = [join(folder, 'safe'), image(folder, 'open', 8)]
  writeFileSync(join(folder, 'key'), value)
  copyFileSync(luks, disk)
  const catalogue = join(folder, 'catalogue.toml')
  const writeCatalogue = (how = 'secret = "safe"') => {
    const volumes = `[volumes.safe]\npath = "${disk}"\n${how}\n[volumes.open]\npath = "${plain}"\n`
    const entries = `roots = ["${folder}"]\n[secrets.safe]\nid = "${UUID}"\n${volumes}`
    writeFileSync(catalogue, entries, { mode: 0o600 })
  }
  writeCatalogue()
  const secrets = await openSecrets(join(folder, 'secrets'))
  await secrets.set('', UUID, Buffer.from(value))
  const registry = await openRegistry(folder)
  const lines: string[] = []
  const log = jsonLogger({ sink: (line) => lines.push(line), level: () => 'trace', version: '', pid: 0 })
  const open = () => openReal(folder, registry, { catalogue, log, secrets })
  let instances = await open()
  const own = () => join(folder, 'instances', readdirSync(join(folder, 'instances'))[0] ?? '')
  const contentOf = (path: string, byte: number) => readFileSync(path).includes(Buffer.alloc(32, byte))
  const layers = async () => (await instances.snapshots(key, ADMIN)).layers
  return {
    ...{ folder, disk, secrets, layers, log: lines, catalogue: writeCatalogue },
    ensure: () => instances.ensure(kind === 'document' ? DOCUMENT : described(disk, plain), ADMIN),
    to: (change: Change) => instances.changeState({ key, change, graceMs: 0 }, ADMIN),
    snapshot: (name: string) => instances.snapshot(SnapshotRequest.fromPartial({ key, name }), ADMIN),
    revert: (name: string) => instances.revert({ key, name }, async () => {}, ADMIN),
    removeAll: () => instances.removeSnapshot({ key, name: '', all: true }, ADMIN),
    /** By the blocks below the guest's disks, while the daemon is away: QEMU has one client at a time. */
    write: async (byte: number) => {
      await instances.close()
      const qmp = await connectQmp(join(own(), 'qmp.sock'), neverAborted)
      for (const name of ['safe', 'open'])
        for (const command of [`write -q -P ${byte} ${BLOCK} ${BLOCK}`, 'flush']) await io(qmp, name, command)
      qmp.close()
      instances = await open()
    },
    /** The byte of the stopped instance's encrypted disk, put together from its layers by the secret. */
    has: (present: Awaited<ReturnType<typeof layers>>) =>
      decryptedByte(own(), disk, present, join(folder, 'key'), 1),
    layersWith: (byte: number) =>
      readdirSync(join(own(), 'disks')).filter((name) => contentOf(join(own(), 'disks', name), byte)),
    /** Returns the byte that was there. */
    changeLayer: (id: number, place: number, byte?: number): number => {
      const path = join(own(), 'disks', `${id}.qcow2`)
      const bytes = readFileSync(path)
      const before = bytes.readUInt8(place)
      bytes.writeUInt8(byte ?? before ^ 0xff, place)
      writeFileSync(path, bytes)
      return before
    },
    inClear: (byte: number) => contentOf(disk, byte),
    remove: async () => {
      await instances.remove(key, ADMIN)
      await instances.close()
      await registry.close()
      return leftovers(folder)
    },
  }
}

function base64(text: string): string {
  return Buffer.from(text).toString('base64')
}

const DOCUMENT = EnsureInstanceRequest.fromPartial({
  properties: { key },
  document:
    '{ kind: VM, spec: { features: { memory: 64, storage: [{ source: safe, name: safe }, { source: open, name: open }] } } }',
})

function described(disk: string, plain: string): EnsureInstanceRequest {
  const device = (backend: string, slot: number) =>
    Device.fromPartial({ backend, slot, disk: { serial: backend } })
  const safe = { path: disk, access: File_Access.READ_WRITE, encryption: { secret: UUID } }
  return ensureRequest(key, {
    specification: {
      board: { kernel: '' },
      devices: {
        safe: device('safe-file', 5),
        open: device('open-file', 6),
        console: Device.fromPartial({ backend: 'output', serial: {} }),
      },
      backends: {
        'safe-file': Backend.fromPartial({ file: safe }),
        'open-file': file(plain),
        output: Backend.fromPartial({ console: {} }),
      },
    },
  })
}
