// A daemon's instances that live the life of disks with snapshots, and die in a call: FOLDER FIRST CALL KIND NUMBER WHEN.
// With the path of a LUKS image in MORTAL_LUKS, and of its secret beside it in `key`, the disk is a copy of it.
import { copyFileSync, existsSync, mkdirSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import {
  ChangeStateRequest_Change as Change,
  type Layer,
  SnapshotRequest,
  State,
} from '../../../../src/gen/microvm/instance/v1/instance.ts'
import type { Instances } from '../../../../src/host/instance/instances.ts'
import { openRegistry } from '../../../../src/host/instance/registry/open-registry.ts'
import { QmpClient } from '../../../../src/host/qemu/qmp/client.ts'
import { openSecrets } from '../../../../src/host/secrets/secrets.ts'
import { instanceFolderName, specKey } from '../../../../src/host/spec/spec-key.ts'
import { BLOCK, bytesOf, decryptedByte, io } from '../layer-bytes.ts'
import { image, openReal } from '../real-wing.ts'
import { ADMIN, ensureRequest, file } from '../requests.ts'
import { tinyGuest } from '../tiny-guest.ts'
import { mortalRegistry } from './mortal-registry.ts'

const [, , folder = '', first = '', deadly = '', kind = '', number = '0', when = 'before'] = process.argv
const disks = join(folder, 'images')
mkdirSync(disks, { recursive: true })
const luks = process.env.MORTAL_LUKS
const luksKey = luks && join(dirname(luks), 'key')
const root = join(disks, 'root')
if (!existsSync(root) && luks === undefined) image(disks, 'root', 16)
if (!existsSync(root) && luks !== undefined) copyFileSync(luks, root)
const board = { kernel: tinyGuest(disks, 'idle') }
const backend = file(root)
const UUID = '6b3f0c62-3d1e-4f0a-9a55-0f4f8f0c2d11'
if (luks !== undefined && backend.file !== undefined) backend.file.encryption = { secret: UUID }
const secrets = await openSecrets(join(folder, 'secrets'))
if (luksKey !== undefined) await secrets.set('', UUID, readFileSync(luksKey))
const request = ensureRequest('web', { specification: { board, backends: { 'root-file': backend } } })
const key = 'web'
/** Each call may be the repetition of one in which an earlier daemon has died. */
const caller = (name: string) => ({ ...ADMIN, isRepeated: true, callKey: `/${name}` })

const snapshot = (name: string) => (instances: Instances) =>
  instances.snapshot(SnapshotRequest.fromPartial({ key, name }), caller(name))
const remove = (name: string) => (instances: Instances) =>
  instances.removeSnapshot({ key, name, all: name === '' }, caller(name))
const to = (change: Change) => (instances: Instances) =>
  instances.changeState({ key, change, graceMs: 0 }, ADMIN)
const write = (block: number, byte: number) => async (instances: Instances) => {
  const { state } = await instances.get(key, ADMIN)
  if (state !== State.RUNNING) throw new Error(`state ${state}, want it running`)
  if (qmp === undefined) throw new Error('no machine')
  await io(qmp, 'root', `write -P ${byte} ${block * BLOCK} ${BLOCK}`)
  await io(qmp, 'root', 'flush')
}
const has =
  (wanted: readonly number[], count: number) =>
  async (instances: Instances): Promise<void> => {
    const { layers } = await instances.snapshots(key, ADMIN)
    const own = join(folder, 'instances', instanceFolderName(specKey(key)))
    const found =
      luksKey === undefined
        ? bytesOf(own, disks, 'root', topOf(layers), layers).join()
        : [0, 1, 2, 3].map((block) => decryptedByte(own, root, layers, luksKey, block)).join()
    if (found !== wanted.join()) throw new Error(`bytes ${found}, want ${wanted}`)
    if (layers.length !== count) throw new Error(`${layers.length} layers, want ${count}`)
  }
const revert = (name: string) => (instances: Instances) =>
  instances.revert({ key, name }, async () => {}, caller(`revert-${name}`))

const CALLS: Readonly<Record<string, (instances: Instances) => Promise<unknown>>> = {
  ensure: (instances) => instances.ensure(request, ADMIN),
  run: to(Change.RUN),
  write1: write(0, 1),
  snapshot: snapshot('one'),
  write2: write(0, 2),
  second: snapshot('two'),
  write3: write(1, 3),
  mergeMiddle: remove('one'),
  write4: write(2, 4),
  mergeTop: remove('two'),
  write5: write(3, 5),
  kill: to(Change.KILL),
  merged: has([2, 3, 4, 5], 0),
  stopped: snapshot('three'),
  runAgain: to(Change.RUN),
  write6: write(0, 6),
  killAgain: to(Change.KILL),
  third: snapshot('four'),
  revert: revert('three'),
  reverted: has([2, 3, 4, 5], 2),
  revertAgain: revert('four'),
  revertedAgain: has([6, 3, 4, 5], 2),
  mergeStopped: remove(''),
  mergedAll: has([6, 3, 4, 5], 0),
  remove: (instances) =>
    instances.remove(key, ADMIN).catch((error) => {
      if (!String(error).includes('not found')) throw error
    }),
}

const die = () => process.kill(process.pid, 'SIGKILL')
const wait = () => new Promise<never>(() => {})
let qmp: QmpClient | undefined
let current = ''
let commands = 0
watchQmp()
const real = await openRegistry(folder)
let commits = 0
const registry =
  kind === 'commit'
    ? {
        ...{ load: real.load.bind(real), close: () => real.close() },
        commit: async (...args: Parameters<typeof real.commit>) => {
          if (current !== deadly) return await real.commit(...args)
          commits += 1
          if (commits > Number(number)) return await wait()
          if (commits < Number(number)) return await real.commit(...args)
          if (when === 'after') await real.commit(...args)
          die()
          return await wait()
        },
      }
    : mortalRegistry(real, { commit: Number.MAX_SAFE_INTEGER, when: 'before' }, die)
const instances = await openReal(folder, registry, { secrets })
const names = Object.keys(CALLS)
for (const name of names.slice(names.indexOf(first))) {
  current = name
  process.stdout.write(`${name}\n`)
  await CALLS[name]?.(instances)
}
await instances.close()
await registry.close()
process.stdout.write('end\n')

function topOf(layers: readonly Layer[]): number {
  return layers.find(({ active }) => active)?.id ?? 0
}

/** Counts the commands that are sent to QEMU in the deadly call. */
function watchQmp(): void {
  const { command, pass } = QmpClient.prototype
  const counted = async <T>(client: QmpClient, work: () => Promise<T>): Promise<T> => {
    qmp = client
    if (current !== deadly || kind !== 'qmp') return await work()
    commands += 1
    const isLast = commands === Number(number)
    if (isLast && when === 'before') die()
    if (commands > Number(number)) return await wait()
    const result = await work().catch((error) => error)
    if (isLast) die()
    if (result instanceof Error) throw result
    return result as T
  }
  QmpClient.prototype.command = function (...args) {
    return counted(this, () => command.apply(this, args))
  }
  QmpClient.prototype.pass = function (...args) {
    return counted(this, () => pass.apply(this, args))
  }
}
