import { execFileSync } from 'node:child_process'
import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { neverAborted } from '../../../../src/base/abort.ts'
import {
  ChangeStateRequest_Change as Change,
  EnsureInstanceRequest,
  SnapshotRequest,
} from '../../../../src/gen/microvm/instance/v1/instance.ts'
import { memoryRegistry } from '../../../../src/host/instance/registry/memory-registry.ts'
import { connectQmp } from '../../../../src/host/qemu/qmp/connect.ts'
import { temporaryFolder } from '../../../support/temporary-folder.ts'
import { BLOCK, io } from '../../../support/wing/layer-bytes.ts'
import { leftovers } from '../../../support/wing/leftovers.ts'
import { openReal } from '../../../support/wing/real-wing.ts'
import { ADMIN } from '../../../support/wing/requests.ts'

const key = 'web'
const document = '{ kind: VM, spec: { features: { memory: 64, storage: [{ source: root, name: root }] } } }'

it('snapshots of a volume that is a qcow2 image go back to its bytes, and are merged into it', async () => {
  const folder = temporaryFolder()
  const [root, catalogue] = ['root.qcow2', 'catalogue.toml'].map((name) => join(folder, name)) as [
    string,
    string,
  ]
  execFileSync('qemu-img', ['create', '-q', '-f', 'qcow2', root, '8M'])
  const put = (format: string) => {
    const text = `roots = ["${folder}"]\n[volumes.root]\npath = "${root}"\nformat = "${format}"\n`
    writeFileSync(catalogue, text, { mode: 0o600 })
  }
  put('qcow2')
  const registry = memoryRegistry()
  const open = () => openReal(folder, registry, { catalogue })
  let instances = await open()
  const to = (change: Change) => instances.changeState({ key, change, graceMs: 0 }, ADMIN)
  const snapshot = (name: string) => instances.snapshot(SnapshotRequest.fromPartial({ key, name }), ADMIN)
  const layers = async () => (await instances.snapshots(key, ADMIN)).layers
  const removeAll = () => instances.removeSnapshot({ key, name: '', all: true }, ADMIN)
  // QEMU has one client at a time.
  const blocks = async (...commands: readonly string[]) => {
    await instances.close()
    const [own = ''] = readdirSync(join(folder, 'instances'))
    const qmp = await connectQmp(join(folder, 'instances', own, 'qmp.sock'), neverAborted)
    for (const command of commands) await io(qmp, 'root', command)
    qmp.close()
    instances = await open()
  }
  const write = (byte: number) => blocks(`write -q -P ${byte} ${BLOCK} ${BLOCK}`, 'flush')
  /** Of the stopped instance, with the layers of its record. */
  const has = async (byte: number) => {
    const present = await layers()
    const [own = ''] = readdirSync(join(folder, 'instances'))
    const open = (id: number): object => ({
      driver: 'qcow2',
      file: {
        driver: 'file',
        filename: id === 0 ? root : join(folder, 'instances', own, 'disks', `${id}.qcow2`),
      },
      backing: id === 0 ? null : open(present.find((layer) => layer.id === id)?.parent ?? 0),
    })
    const disk = `json:${JSON.stringify(open(present.find((layer) => layer.active)?.id ?? 0))}`
    const command = `read -q -P ${byte} ${BLOCK} ${BLOCK}`
    expect(execFileSync('qemu-io', ['-r', '-c', command, disk], { encoding: 'utf8' })).toBe('')
    execFileSync('qemu-img', ['check', '-q', root])
  }

  await instances.ensure(EnsureInstanceRequest.fromPartial({ properties: { key }, document }), ADMIN)
  await write(1)
  await snapshot('running')
  expect(await layers()).toMatchObject([{ sizeBytes: 8n << 20n, qcow2Base: true }])
  await write(2)
  await to(Change.KILL)
  await snapshot('stopped')
  await to(Change.RUN)
  await write(3)
  await to(Change.KILL)
  await has(3)
  for (const [name, byte] of [
    ['running', 1],
    ['stopped', 2],
  ] as const) {
    await instances.revert({ key, name }, async () => {}, ADMIN)
    await has(byte)
    await to(Change.RUN)
    await to(Change.KILL)
  }
  put('raw')
  await expect(to(Change.RUN)).rejects.toMatchObject({
    code: 'FAILED_PRECONDITION',
    message: 'backends.root-backend.file.format: raw, want qcow2: snapshots are on that',
  })
  put('qcow2')
  const incompatible = (bits: bigint) => {
    const bytes = readFileSync(root)
    bytes.writeBigUInt64BE(bits, 72)
    writeFileSync(root, bytes)
  }
  // Its clusters would be in a file that the image names.
  incompatible(4n)
  await expect(removeAll()).rejects.toMatchObject({
    code: 'FAILED_PRECONDITION',
    message: `backends.root-backend.file.path: ${root}: an image that names another file, want one that has all in itself`,
  })
  incompatible(0n)
  await removeAll()
  expect(await layers()).toEqual([])
  await has(2)
  await to(Change.RUN)
  await snapshot('again')
  await write(4)
  await removeAll()
  expect(await layers()).toEqual([])
  await to(Change.KILL)
  await has(4)
  await snapshot('last')
  expect(await layers()).toMatchObject([{ sizeBytes: 8n << 20n }])
  await instances.remove(key, ADMIN)
  await instances.close()
  expect(leftovers(folder)).toEqual([])
})
