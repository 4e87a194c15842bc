import { mkdirSync, readdirSync, readFileSync, readlinkSync } from 'node:fs'
import { basename, join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { expect } from 'vitest'
import {
  ChangeStateRequest_Change as Change,
  ChangeStateRequest,
  type DeepPartial,
  EnsureInstanceRequest,
  type Instance,
  type SavedMachine,
  type Snapshot,
  SnapshotRequest,
  type Specification,
  State,
  SuspendInstanceRequest,
} from '../../../src/gen/microvm/instance/v1/instance.ts'
import { readRing } from '../../../src/host/instance/holder/holder-files.ts'
import type { Instances } from '../../../src/host/instance/instances.ts'
import { memoryRegistry } from '../../../src/host/instance/registry/memory-registry.ts'
import type { Registry } from '../../../src/host/instance/registry/registry.ts'
import type { AtStep, Operation } from '../../../src/host/migration/faults.ts'
import { instanceFolderName, specKey } from '../../../src/host/spec/spec-key.ts'
import { temporaryFolder } from '../temporary-folder.ts'
import { image, openReal } from './real-wing.ts'
import { ADMIN, ensureRequest, file } from './requests.ts'
import { tinyGuest } from './tiny-guest.ts'

const STATE_NAMES: Readonly<Record<number, string>> = {
  [State.RUNNING]: 'running',
  [State.STOPPED]: 'stopped',
}

/** A state folder with instances whose guest counts in its memory, and tells each number over its console. */
export class CountingMachines {
  readonly folder: string
  readonly disks: string
  #registry: Registry
  #instances: Instances | undefined
  /** Called before each step of a suspend and a resume. */
  atStep: AtStep = async () => {}

  constructor(folder = temporaryFolder(), disks = join(folder, 'images'), registry = memoryRegistry()) {
    this.folder = folder
    this.disks = disks
    this.#registry = registry
    mkdirSync(disks, { recursive: true })
  }

  async open(): Promise<Instances> {
    this.#instances ??= await openReal(this.folder, this.#registry, {
      atStep: (operation, step) => this.atStep(operation, step),
    })
    return this.#instances
  }

  /** Lets go of the machines, as a daemon that dies. */
  async leave(): Promise<void> {
    await this.#instances?.close()
    this.#instances = undefined
  }

  /** A machine that runs and has told some numbers. */
  async make(key = 'web', change: DeepPartial<Specification> = {}): Promise<Instance> {
    const made = await (await this.open()).ensure(this.request(key, change), ADMIN)
    await this.change(Change.RUN, key)
    await this.counted(key, 1)
    return made
  }

  request(key = 'web', { board, devices, backends }: DeepPartial<Specification> = {}): EnsureInstanceRequest {
    const all = ensureRequest(key, {
      specification: {
        board: { kernel: tinyGuest(this.disks, 'count'), ...board },
        devices: {
          root: { backend: 'root-file', slot: 3, disk: { serial: 'root' } },
          ...(board?.machine === undefined && { port: { slot: 4, rootPort: {} } }),
          console: { backend: 'output', serial: {} },
          ...devices,
        },
        backends: { 'root-file': file(image(this.disks, 'root', 16)), output: { console: {} }, ...backends },
      },
    })
    return all
  }

  async change(change: Change, key = 'web'): Promise<Instance> {
    return (await this.open()).changeState(ChangeStateRequest.fromPartial({ key, change }), ADMIN)
  }

  async suspend(change: DeepPartial<SuspendInstanceRequest> = {}, caller = ADMIN): Promise<SavedMachine> {
    const request = SuspendInstanceRequest.fromPartial({ key: 'web', name: 'one', ...change })
    return (await this.open()).suspend(request, caller)
  }

  async resume(
    saved: EnsureInstanceRequest['saved'] | { readonly name?: string; readonly folder?: string } = {},
    key = 'web',
  ): Promise<Instance> {
    const request = EnsureInstanceRequest.fromPartial({
      properties: { key },
      saved: { name: 'one', ...saved },
    })
    return (await this.open()).ensure(request, ADMIN)
  }

  async snapshot(change: DeepPartial<SnapshotRequest> = {}, caller = ADMIN): Promise<Snapshot> {
    const request = SnapshotRequest.fromPartial({ key: 'web', name: 'one', memory: true, ...change })
    return (await this.open()).snapshot(request, caller)
  }

  /** Of a machine that is ended before. */
  async revert(name = 'one'): Promise<Instance> {
    if ((await (await this.open()).get('web', ADMIN)).state !== State.STOPPED) await this.change(Change.KILL)
    return (await this.open()).revert({ key: 'web', name }, async () => {}, ADMIN)
  }

  /** Kills at a step. A daemon that dies answers nothing more; the next one takes the instances in. */
  async killAt(
    {
      killed,
      operation,
      step,
    }: {
      readonly killed: 'daemon' | 'qemu' | 'holder'
      readonly operation: Operation
      readonly step: string
    },
    work: () => Promise<unknown>,
  ): Promise<void> {
    const reached = Promise.withResolvers<void>()
    this.atStep = async (in_, at) => {
      if (in_ !== operation || at !== step) return
      this.atStep = async () => {}
      if (killed === 'daemon') {
        reached.resolve()
        return await new Promise(() => {})
      }
      const [pid] = this.pidsOf(killed)
      if (pid !== undefined) process.kill(pid, 'SIGKILL')
      // The kernel ends QEMU after its holder: until then it could still be told to run.
      await expect.poll(() => this.pidsOf('qemu'), { timeout: 10_000 }).toEqual([])
    }
    const done = work().then(
      () => {},
      () => {},
    )
    await Promise.race([done, reached.promise])
    if (killed === 'daemon') await this.leave()
    // The end of QEMU is followed after the change.
    else await (await this.open()).get('web', ADMIN).catch(() => {})
  }

  folderOf(key = 'web'): string {
    return join(this.folder, 'instances', instanceFolderName(specKey(key)))
  }

  /** What there is: instances with their states, and saved machines that are no instance. */
  async found(): Promise<string> {
    const instances = await this.open()
    const own = await Promise.all(
      instances.list(ADMIN).map(({ properties }) => instances.get(properties?.key ?? '', ADMIN)),
    )
    const saved = await instances.listSaved(ADMIN)
    const states = own.map(({ state }) => STATE_NAMES[state] ?? `state ${state}`)
    return [...states, ...saved.flatMap(({ resumedAs }) => (resumedAs === '' ? ['suspended'] : []))].join(
      ' and ',
    )
  }

  /** What the guest has told, each number one more than that before; throws where it is not. */
  async told(key = 'web'): Promise<{ readonly first: bigint; readonly end: bigint; readonly last: number }> {
    const { bytes, end, first } = await readRing(this.folderOf(key), 0)
    for (let at = 1; at < bytes.length; at++)
      if (bytes[at] !== (Number(bytes[at - 1]) + 1) % 256)
        throw new Error(`byte ${first + BigInt(at)}: ${bytes[at - 1]} is followed by ${bytes[at]}`)
    return { first, end, last: bytes.at(-1) ?? 0 }
  }

  /** What a guest that stands still has told last, once the holder has all of it. */
  async quiet(key = 'web'): Promise<{ readonly end: bigint; readonly last: number }> {
    for (let before = -1n; ; ) {
      const { bytes, end } = await readRing(this.folderOf(key), 0)
      if (end === before) return { end, last: bytes.at(-1) ?? 0 }
      before = end
      await delay(50)
    }
  }

  /** Resolves once the guest has told so many numbers more. */
  async counted(key: string, more: number): Promise<void> {
    const { end } = await readRing(this.folderOf(key), 0).catch(() => ({ end: 0n }))
    const late = AbortSignal.timeout(60_000)
    while ((await readRing(this.folderOf(key), 0)).end < end + BigInt(more))
      await delay(10, undefined, { signal: late })
  }

  /** Starts a machine that has ended. What it tells is another count. */
  async again(key = 'web'): Promise<void> {
    await this.change(Change.RUN, key)
    await this.counted(key, 1)
  }

  /** Of QEMU, or of the holder. */
  pidsOf(what: 'qemu' | 'holder', key = 'web'): readonly number[] {
    const folder = this.folderOf(key)
    return readdirSync('/proc').flatMap((pid) => {
      const words = /^\d+$/.test(pid) ? commandOf(pid) : []
      const isQemu = basename(words[0] ?? '').startsWith('qemu-system') && cwdOf(pid) === folder
      const isHolder = basename(words[0] ?? '') === 'holder' && words[1] === folder
      return (what === 'qemu' ? isQemu : isHolder) ? [Number(pid)] : []
    })
  }

  /** Removes all instances. */
  async end(): Promise<void> {
    const instances = await this.open()
    for (const { properties } of instances.list(ADMIN)) await instances.remove(properties?.key ?? '', ADMIN)
    await this.leave()
  }
}

function commandOf(pid: string): readonly string[] {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0')
  } catch {
    return []
  }
}

function cwdOf(pid: string): string {
  try {
    return readlinkSync(`/proc/${pid}/cwd`)
  } catch {
    return ''
  }
}
