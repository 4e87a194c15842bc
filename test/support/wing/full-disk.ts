// Calls of a daemon whose state folder has ever more room, until they succeed: FOLDER CALL… Each attempt is a line of JSON. The
// state folder is a file system of its own, so that this wants a mount namespace.
import { execFileSync } from 'node:child_process'
import { existsSync, mkdirSync, readdirSync, rmSync, statfsSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { AgentError, messageOf } from '../../../src/base/errors.ts'
import {
  ChangeStateRequest_Change as Change,
  CloneInstanceRequest,
  EnsureInstanceRequest,
  PlugRequest,
  SnapshotRequest,
  SuspendInstanceRequest,
} from '../../../src/gen/microvm/instance/v1/instance.ts'
import { openRegistry } from '../../../src/host/instance/registry/open-registry.ts'
import { image, openReal } from './real-wing.ts'
import { ADMIN } from './requests.ts'

export interface Attempt {
  readonly call: Call
  readonly resource: 'blocks' | 'inodes'
  readonly room: number
  readonly code?: string
  readonly message?: string
  /** Of what was not there before. */
  readonly left: readonly string[]
}

type Call = 'ensure' | 'run' | 'plug' | 'snapshot' | 'revert' | 'merge' | 'suspend' | 'resume' | 'clone'

interface Work {
  readonly before: () => Promise<unknown>
  readonly call: () => Promise<unknown>
  readonly undo: () => Promise<unknown>
}

await main(process.argv[2] ?? '', process.argv.slice(3))

async function main(folder: string, calls: readonly string[]): Promise<void> {
  const [full, disks] = ['full', 'disks'].map((each) => join(folder, each))
  if (full === undefined || disks === undefined) throw new Error('no folders')
  for (const each of [full, disks]) mkdirSync(each)
  const options = 'size=96m,nr_inodes=200,mode=755'
  execFileSync('mount', ['-t', 'tmpfs', '-o', options, 'tmpfs', full])
  const catalogue = join(disks, 'catalogue.toml')
  const volumes = ['root', 'more'].map((each) => `[volumes.${each}]\npath = "${image(disks, each, 8)}"\n`)
  writeFileSync(catalogue, `roots = ["${disks}"]\n${volumes.join('')}`, { mode: 0o600 })
  const state = join(full, 's')
  mkdirSync(state)
  const registry = await openRegistry(state)
  const instances = await openReal(state, registry, { catalogue })

  const key = 'web'
  const ensure = () => {
    const features = '{memory: 64, firmware: uefi, storage: [{source: root}], metadata: {name: web}}'
    const document = `{kind: VM, spec: {features: ${features}}}`
    return instances.ensure(EnsureInstanceRequest.fromPartial({ properties: { key }, document }), ADMIN)
  }
  const change = (to: Change) => instances.changeState({ key, change: to, graceMs: 0 }, ADMIN)
  const remove = () => instances.remove(key, ADMIN)
  const snapshot = () => instances.snapshot(SnapshotRequest.fromPartial({ key, name: 's' }), ADMIN)
  const merge = () => instances.removeSnapshot({ key, name: '', all: true }, ADMIN)
  const nothing = async () => {}
  const inOrder =
    (...all: readonly (() => Promise<unknown>)[]) =>
    async () => {
      for (const each of all) await each()
    }
  const run = () => change(Change.RUN)
  const kill = () => change(Change.KILL)
  const features = 'storage: [{source: more}]'
  const plug = () => instances.plug(PlugRequest.fromPartial({ key, deviceKey: 'more', features }), ADMIN)
  const name = 's'
  const suspend = () =>
    instances.suspend(SuspendInstanceRequest.fromPartial({ key, name, withoutAgent: true }), ADMIN)
  const resume = () =>
    instances.ensure(EnsureInstanceRequest.fromPartial({ properties: { key }, saved: { name } }), ADMIN)
  const clone = () => {
    const request = { saved: name, count: 1, name: 'clone', withoutAgent: true }
    return instances.clone(CloneInstanceRequest.fromPartial(request), ADMIN, nothing)
  }
  const works: Readonly<Record<Call, Work>> = {
    ensure: { before: nothing, call: ensure, undo: remove },
    run: { before: inOrder(ensure, kill), call: run, undo: kill },
    plug: { before: inOrder(ensure, run), call: plug, undo: inOrder(remove, ensure, run) },
    snapshot: { before: inOrder(ensure, run), call: snapshot, undo: merge },
    revert: {
      before: inOrder(ensure, kill, snapshot),
      call: () => instances.revert({ key, name: 's' }, async () => {}, ADMIN),
      undo: nothing,
    },
    merge: { before: inOrder(ensure, run, snapshot), call: merge, undo: snapshot },
    suspend: { before: inOrder(ensure, run, snapshot), call: suspend, undo: resume },
    resume: { before: inOrder(ensure, run, snapshot, suspend), call: resume, undo: suspend },
    clone: {
      before: inOrder(ensure, run, snapshot, suspend),
      call: clone,
      undo: () => instances.remove('clone', ADMIN),
    },
  }

  /** Files and rows, and what the instance is. */
  const present = async (): Promise<readonly string[]> => {
    const files = ['instances', 'saved', 'keepers'].flatMap((each) => filesIn(join(state, each)))
    const steps = [...(await registry.load('steps')).keys()].map((step) => `step ${step}`)
    const listed = instances.list(ADMIN)
    const all = listed.map(({ properties, state: is }) => `${properties?.key} is ${is}`)
    const [first] = listed
    const own = first && (await instances.get(first.properties?.key ?? '', ADMIN))
    const devices = Object.keys(own?.devices ?? {}).map((each) => `device ${each}`)
    const { configurations: { saved, desired, current } = {} } = own ?? {}
    const machines = [saved, desired, current].map((machine, index) => `machine ${index}: ${machine}`)
    return [...files, ...steps, ...all, ...devices, ...(own === undefined ? [] : machines)]
  }

  const attempt = async (call: Work['call'], resource: Attempt['resource'], room: number) => {
    const earlier = await present()
    fill(join(full, 'fill'), resource, room)
    const error = await call().then(
      () => undefined,
      (reason) => ({ code: codeOf(reason), message: messageOf(reason) }),
    )
    const left = error === undefined ? [] : (await present()).filter((each) => !earlier.includes(each))
    rmSync(join(full, 'fill'), { recursive: true })
    return { resource, room, ...error, left }
  }

  try {
    for (const [what, { before, call, undo }] of Object.entries(works)) {
      if (!calls.includes(what)) continue
      await before()
      // Folders and logs that stay are there from now on.
      await call()
      await undo()
      for (const resource of ['blocks', 'inodes'] as const) {
        let [step, last] = [1, '']
        for (let room = 0; ; room += step) {
          const { message, ...others } = await attempt(call, resource, room)
          process.stdout.write(`${JSON.stringify({ call: what, message, ...others })}\n`)
          if (message !== undefined) await call()
          await undo()
          if (message === undefined) break
          // A large file is left behind soon; each other one has its attempts.
          const fault = message.replace(/\d+/g, '')
          step = resource === 'blocks' && fault === last ? 4 * step : 1
          last = fault
        }
      }
      await remove().catch(() => {})
      await instances.deleteSaved(name, ADMIN).catch(() => {})
    }
  } finally {
    await remove().catch(() => {})
    await instances.close()
    await registry.close()
  }
}

function filesIn(folder: string): readonly string[] {
  return existsSync(folder) ? readdirSync(folder, { recursive: true }).map(String) : []
}

function codeOf(error: unknown): string {
  return error instanceof AgentError ? error.code : 'no AgentError'
}

/** Leaves `room` blocks, or inodes. */
function fill(folder: string, resource: Attempt['resource'], room: number): void {
  mkdirSync(folder)
  if (resource === 'blocks') {
    const { bavail, bsize } = statfsSync(folder)
    writeFileSync(join(folder, 'filler'), Buffer.alloc(Math.max(0, bavail - room) * bsize, 1))
    return
  }
  const { ffree } = statfsSync(folder)
  for (let left = ffree; left > room; left--) writeFileSync(join(folder, String(left)), '')
}
