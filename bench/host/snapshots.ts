import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { neverAborted } from '../../src/base/abort.ts'
import { makeTemporaryFolder, removeTemporaryFolder } from '../../src/build/temporary-folder.ts'
import {
  ChangeStateRequest_Change as Change,
  SnapshotRequest,
} from '../../src/gen/microvm/instance/v1/instance.ts'
import { openRegistry } from '../../src/host/instance/registry/open-registry.ts'
import { emptyOverlay } from '../../src/host/instance/snapshots/overlay-file.ts'
import { QmpClient } from '../../src/host/qemu/qmp/client.ts'
import { connectQmp } from '../../src/host/qemu/qmp/connect.ts'
import { io } from '../../test/support/wing/layer-bytes.ts'
import { image, lifePlan, openReal } from '../../test/support/wing/real-wing.ts'
import { ADMIN, file } from '../../test/support/wing/requests.ts'
import { median, report } from '../support/figure.ts'

/**
 * How long a guest stands still for a snapshot of its disk of 1 GiB, of which 16 MiB were just written, and for the end of a
 * merge. The floor is a bare QEMU with the same transaction between `stop` and `cont`.
 */
const ROUNDS = 15
const DISK_MIB = 1024
const DIRTY = 'write -P 1 0 16M'
/** What may come on top of bare QEMU. */
const ALLOWED_MS = 100

const folder = makeTemporaryFolder('/tmp')
const { request } = lifePlan(join(folder, 'disks'))
const disk = image(folder, 'disk', DISK_MIB)
const key = 'web'

async function bareMs(): Promise<readonly number[]> {
  const own = join(folder, 'bare')
  mkdirSync(own)
  const path = image(own, 'disk', DISK_MIB)
  const socket = join(own, 'qmp.sock')
  const qemu = spawn('qemu-system-x86_64', [
    ...['-nodefaults', '-display', 'none', '-machine', 'q35', '-accel', 'tcg', '-m', '64M'],
    ...['-kernel', request.specification?.board?.kernel ?? ''],
    ...['-blockdev', `driver=file,node-name=file0,filename=${path}`],
    ...['-blockdev', 'driver=raw,node-name=layer0,file=file0'],
    ...['-device', 'virtio-blk-pci,drive=layer0,id=name-root', '-qmp', `unix:${socket},server=on,wait=off`],
  ])
  const exited = once(qemu, 'exit')
  const qmp = await connectQmp(socket, neverAborted)
  const times: number[] = []
  for (let round = 1; round <= ROUNDS; round++) {
    const overlay = join(own, `${round}.qcow2`)
    writeFileSync(overlay, emptyOverlay(DISK_MIB * 2 ** 20))
    const add = (args: object) =>
      qmp.command({ execute: 'blockdev-add', arguments: { ...args } }, neverAborted)
    await add({ driver: 'file', 'node-name': `file${round}`, filename: overlay })
    await add({ driver: 'qcow2', 'node-name': `layer${round}`, file: `file${round}`, backing: null })
    await io(qmp, 'root', DIRTY)
    const data = { node: `layer${round - 1}`, overlay: `layer${round}` }
    const begin = performance.now()
    await qmp.execute('stop', {}, neverAborted)
    await qmp.execute('transaction', { actions: [{ type: 'blockdev-snapshot', data }] }, neverAborted)
    await qmp.execute('cont', {}, neverAborted)
    times.push(performance.now() - begin)
  }
  await qmp.execute('quit', {}, neverAborted).catch(() => {})
  await exited
  return times
}

async function ownMs() {
  let qmp: QmpClient | undefined
  const { command } = QmpClient.prototype
  QmpClient.prototype.command = function (...args) {
    qmp = this
    return command.apply(this, args)
  }
  const registry = await openRegistry(folder)
  const instances = await openReal(folder, registry)
  const times = { snapshot: [] as number[], merge: [] as number[] }
  const { specification } = request
  if (specification !== undefined) specification.backends['root-file'] = file(disk)
  await instances.ensure(request, ADMIN)
  await instances.changeState({ key, change: Change.RUN, graceMs: 0 }, ADMIN)
  for (let round = 1; round <= ROUNDS; round++) {
    if (qmp !== undefined) await io(qmp, 'root', DIRTY)
    const snapshot = SnapshotRequest.fromPartial({ key, name: `s${round}` })
    times.snapshot.push(Number((await instances.snapshot(snapshot, ADMIN)).stillUs) / 1000)
    if (qmp !== undefined) await io(qmp, 'root', DIRTY)
    const { stillUs } = await instances.removeSnapshot({ key, name: '', all: true }, ADMIN)
    times.merge.push(Number(stillUs) / 1000)
  }
  await instances.remove(key, ADMIN)
  await instances.close()
  await registry.close()
  return times
}

try {
  const floor = median(await bareMs())
  const { snapshot, merge } = await ownMs()
  const common = { unit: 'ms', floor, limit: (floor + ALLOWED_MS) / floor } as const
  report({ figure: 'guest stands still for a snapshot (1 GiB)', value: median(snapshot), ...common })
  report({ figure: 'guest stands still for a merge (1 GiB)', value: median(merge), ...common })
} finally {
  removeTemporaryFolder(folder)
}
