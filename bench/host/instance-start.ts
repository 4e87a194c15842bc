import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { chmodSync, chownSync, mkdirSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { neverAborted } from '../../src/base/abort.ts'
import { silentLogger } from '../../src/base/log.ts'
import { buildHolder } from '../../src/build/native.ts'
import { makeTemporaryFolder, removeTemporaryFolder } from '../../src/build/temporary-folder.ts'
import { startHolder } from '../../src/host/instance/holder/start-holder.ts'
import { STEPS } from '../../src/host/instance/machine/steps.ts'
import { UIDS } from '../../src/host/instance/machine/uids.ts'
import { hostPlan } from '../../src/host/instance/open-host-instances.ts'
import { newRecord } from '../../src/host/instance/record/instance-record.ts'
import { openRegistry } from '../../src/host/instance/registry/open-registry.ts'
import { connectQmp } from '../../src/host/qemu/qmp/connect.ts'
import { LimitedCgroups } from '../../src/os/cgroup/limited-cgroups.ts'
import { image, lifePlan, openReal } from '../../test/support/wing/real-wing.ts'
import { ADMIN, file } from '../../test/support/wing/requests.ts'
import { median, report } from '../support/figure.ts'

/**
 * The time from EnsureInstance to QEMU's greeting, and to the answer, against the same QEMU started bare until its greeting.
 * The same QEMU below a holder, with walls and without. The time in which a daemon takes 20 paused machines in again.
 */
const ROUNDS = 21
const ADOPTED = 20

const folder = makeTemporaryFolder('/tmp')
const { request } = lifePlan(join(folder, 'disks'))
const plan = hostPlan({ log: silentLogger(), acceleration: 'tcg', isKept: true })

async function bareMs(): Promise<number> {
  const { properties, specification } = request
  if (properties === undefined || specification === undefined) throw new Error('no specification')
  const bare = join(folder, 'bare')
  mkdirSync(bare, { recursive: true })
  const steps = await plan(newRecord(properties, specification, { cid: 0, uid: 0, nowMs: 0 }), bare)
  const [program = '', ...args] = steps.find(({ step }) => step === 'qemu')?.argv ?? []
  const begin = performance.now()
  const qemu = spawn(program, args, { stdio: 'ignore' })
  const qmp = await connectQmp(join(bare, 'qmp.sock'), neverAborted)
  const ms = performance.now() - begin
  const exited = once(qemu, 'exit')
  await qmp.execute('quit', {}, neverAborted).catch(() => {})
  await exited
  return ms
}

/** From the cgroup, where there are walls, and the holder to QEMU's greeting. */
async function heldMs(cgroups: LimitedCgroups | undefined): Promise<number> {
  const { properties, specification } = request
  if (properties === undefined || specification === undefined) throw new Error('no specification')
  const uid = cgroups === undefined ? 0 : UIDS.first + UIDS.count - 1
  const own = join(folder, 'instances', cgroups === undefined ? 'held' : 'walled')
  const walls = cgroups && { kvm: 'all' as const }
  const start = hostPlan(
    { log: silentLogger(), acceleration: 'tcg', isKept: true },
    walls,
    cgroups?.controllers,
  )
  const steps = await start(newRecord(properties, specification, { cid: 0, uid, nowMs: 0 }), own)
  const qemu = steps.find(({ step }) => step === 'qemu')
  const cgroup = steps.find(({ step }) => step === 'cgroup')
  mkdirSync(own, { recursive: true })
  chownSync(own, 0, uid)
  chmodSync(own, 0o710)
  const begin = performance.now()
  const name = cgroup?.words[1] ?? ''
  await cgroups?.make(name, cgroup?.limits ?? {})
  const holder = await startHolder(own, await buildHolder(), await cgroups?.foldersOf(name))
  const { argv = [''], walls: words } = qemu ?? {}
  await holder.start({ name: 'qemu', output: 'console', argv, walls: words })
  const qmp = await connectQmp(join(own, 'qmp.sock'), neverAborted)
  const ms = performance.now() - begin
  qmp.close()
  await holder.end()
  await cgroups?.remove(name)
  rmSync(join(own, 'qmp.sock'), { force: true })
  return ms
}

async function walledTimes() {
  const cgroups = await LimitedCgroups.find('microvm')
  if (cgroups === undefined) throw new Error('no cgroup is writable')
  const times = { held: [] as number[], walled: [] as number[] }
  for (let round = 0; round <= ROUNDS; round++) {
    const [held, walled] = [await heldMs(undefined), await heldMs(cgroups)]
    if (round === 0) continue
    times.held.push(held)
    times.walled.push(walled)
  }
  return times
}

async function adoptedMs(): Promise<number> {
  const { specification } = request
  const keys = Array.from({ length: ADOPTED }, (_, index) => `machine-${index}`)
  const first = await openRegistry(folder)
  const before = await openReal(folder, first)
  for (const key of keys) {
    const backends = { 'root-file': file(image(folder, key, 16)) }
    const own = {
      properties: { key, tenant: '', labels: {} },
      specification: specification && { ...specification, backends },
    }
    await before.ensure(own, ADMIN)
  }
  await before.close()
  await first.close()
  const registry = await openRegistry(folder)
  const begin = performance.now()
  const instances = await openReal(folder, registry)
  const ms = performance.now() - begin
  for (const key of keys) await instances.remove(key, ADMIN)
  await instances.close()
  await registry.close()
  return ms
}

/** When QEMU last greeted. */
let greeted = 0

const { make } = STEPS.qemu
Object.assign(STEPS.qemu, {
  make: async (...given: Parameters<typeof make>) => {
    await make(...given)
    greeted = performance.now()
  },
})

async function ensured() {
  const registry = await openRegistry(folder)
  const instances = await openReal(folder, registry)
  const times = { bare: [] as number[], greeting: [] as number[], answer: [] as number[] }
  for (let round = 0; round <= ROUNDS; round++) {
    const floor = await bareMs()
    const begin = performance.now()
    await instances.ensure(request, ADMIN)
    const ms = performance.now() - begin
    const greetingMs = greeted - begin
    await instances.remove('web', ADMIN)
    // The first round warms up.
    if (round === 0) continue
    times.bare.push(floor)
    times.greeting.push(greetingMs)
    times.answer.push(ms)
  }
  await instances.close()
  await registry.close()
  return times
}

try {
  const times = await ensured()
  const [value, floor] = [median(times.greeting), median(times.bare)]
  const phases = { answer: median(times.answer) }
  report({ figure: "EnsureInstance until QEMU's greeting", unit: 'ms', value, floor, limit: 1.1, phases })
  const { walled, held } = await walledTimes()
  report({
    figure: "a walled QEMU's start until its greeting",
    unit: 'ms',
    value: median(walled),
    floor: median(held),
    limit: 1.1,
  })
  const adopted = await adoptedMs()
  report({
    figure: `${ADOPTED} paused machines taken in again`,
    unit: 'ms',
    value: adopted,
    floor: 2000,
    limit: 1,
  })
} finally {
  removeTemporaryFolder(folder)
}
