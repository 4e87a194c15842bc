import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import {
  ChangeStateRequest_Change as Change,
  EnsureInstanceRequest,
  SnapshotRequest,
  State,
} from '../../../../src/gen/microvm/instance/v1/instance.ts'
import { memoryRegistry } from '../../../../src/host/instance/registry/memory-registry.ts'
import { emptyOverlay } from '../../../../src/host/instance/snapshots/overlay-file.ts'
import { temporaryFolder } from '../../../support/temporary-folder.ts'
import { leftovers } from '../../../support/wing/leftovers.ts'
import { image, openReal } from '../../../support/wing/real-wing.ts'
import { tenant } from '../../../support/wing/requests.ts'

const ANNE = tenant('anne')
const key = 'web'
const DOCUMENT = `
apiVersion: microvm/v1
kind: VM
metadata: { name: web }
spec:
  features:
    memory: { size: 64, maximum: 64 }
    cpu: 1
    storage: [{ source: root-of-web }, { source: left-out, snapshot: false }]
    network: [{ source: lan }]
`

it('snapshots of a machine of a document keep it, and look its names up again', async () => {
  const folder = temporaryFolder()
  const catalogue = join(folder, 'catalogue.toml')
  const [root = '', other = '', out = ''] = ['root', 'other', 'out'].map((name) => image(folder, name, 8))
  const tap = `s${createHash('sha256').update(folder).digest('hex').slice(0, 10)}`
  const write = (path = '', owner = 'anne', more = '', neighbour = 'anne') =>
    writeFile(
      catalogue,
      `roots = ["${folder}"]\n[volumes.root-of-web]\npath = "${path}"\ntenants = ["${owner}"]\n${more}
[volumes.left-out]\npath = "${out}"\ntenants = ["anne"]
[networks.lan]\ninterface = "${tap}"\ntenants = ["${neighbour}"]\n`,
      { mode: 0o600 },
    )
  await write(root)
  const instances = await openReal(folder, memoryRegistry(), { catalogue })
  const to = (change: Change) => instances.changeState({ key, change, graceMs: 0 }, ANNE)
  const snapshot = (name: string) => instances.snapshot(SnapshotRequest.fromPartial({ key, name }), ANNE)
  const revert = (name: string) => instances.revert({ key, name }, async () => {}, ANNE)
  const request = EnsureInstanceRequest.fromPartial({ properties: { key }, document: DOCUMENT })
  const made = await instances.ensure(request, ANNE)
  const saved = made.configurations?.saved
  expect(await snapshot('one')).toMatchObject({ machine: saved, disks: [{ device: 'disk0' }] })
  expect(await instances.get(key, ANNE)).toMatchObject({ backends: { 'disk0-backend': { node: 'layer-1' } } })
  await to(Change.KILL)
  await snapshot('two')
  expect(await revert('one')).toMatchObject({ state: State.STOPPED, configurations: { saved } })
  expect(await to(Change.RUN)).toMatchObject({ backends: { 'disk0-backend': { node: 'layer-3' } } })
  await to(Change.KILL)
  await write(other)
  await expect(to(Change.RUN)).rejects.toMatchObject({
    code: 'FAILED_PRECONDITION',
    message: `backends.disk0-backend.file.path: ${other}, want ${root}: snapshots are on that`,
  })
  await write(root, 'bob')
  await expect(revert('two')).rejects.toMatchObject({
    code: 'FAILED_PRECONDITION',
    message: expect.stringMatching(/^spec\.features\.storage\[0\]\.source: .*root-of-web/),
  })
  await write(root, 'anne', '', 'bob')
  await expect(revert('two')).rejects.toMatchObject({
    code: 'FAILED_PRECONDITION',
    message: expect.stringMatching(/^spec\.features\.network\[0\]\.source: .*lan/),
  })
  await write(root)
  await revert('two')
  await instances.removeSnapshot({ key, name: '', all: true }, ANNE)
  expect((await instances.snapshots(key, ANNE)).layers).toEqual([])
  await write(root, 'anne', 'format = "qcow2"\n')
  await expect(snapshot('three')).rejects.toMatchObject({
    code: 'FAILED_PRECONDITION',
    message: 'a file of the host: not a qcow2 image',
  })
  const own = emptyOverlay(8 * 2 ** 20)
  const named = Buffer.from(own)
  named.writeBigUInt64BE(512n, 8)
  named.writeUInt32BE('/etc/passwd'.length, 16)
  named.write('/etc/passwd', 512)
  await writeFile(root, named)
  await expect(to(Change.RUN)).rejects.toMatchObject({
    code: 'FAILED_PRECONDITION',
    message: `backends.disk0-backend.file.path: ${root}: an image that names another file, want one that has all in itself`,
  })
  await writeFile(root, own)
  const { qemuPid } = await to(Change.RUN)
  expect(readFileSync(`/proc/${qemuPid}/cmdline`, 'utf8')).toContain('"backing":null')
  await instances.remove(key, ANNE)
  await instances.close()
  expect(leftovers(folder)).toEqual([])
})
