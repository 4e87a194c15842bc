import { propertyOf } from '../../base/property-of.ts'
import type { Spec } from '../../gen/oci.ts'
import type { ScratchFolder } from '../../os/files/files.ts'
import type { Os } from '../../os/os.ts'
import type { RuntimeOptions } from './run.ts'
import type { RuntimeFile } from './runtime-program.ts'

export interface EndedContainer {
  /** The runtime's id of the container, which was checked to be one component of a path. */
  readonly id: string
  readonly initPid: number
  readonly cgroupPath: string
  readonly spec: Pick<Spec, 'Hooks'>
  /** Removes what needs no runtime: the cgroups, and what the container holds. Throws when a cgroup stays. */
  readonly clear: () => Promise<void>
}

/** The versions whose `delete` has the known effect. A test checks that they are those of the image. */
export const VERIFIED_VERSIONS: Readonly<Record<RuntimeOptions['kind'], readonly string[]>> = {
  runc: ['1.3.6+ds1-1'],
  crun: ['1.28'],
}

/**
 * The state files of a stopped container, in the order of their removal; the runtime finds a container by `main`. After a
 * crash in between, the runtime either still finds the container, or its `delete` just removes the rest.
 */
const FILES: Readonly<
  Record<RuntimeOptions['kind'], { readonly all: readonly string[]; readonly main: string }>
> = {
  runc: { all: ['exec.fifo', 'state.json'], main: 'state.json' },
  crun: { all: ['exec.fifo', 'seccomp.bpf', 'status', 'config.json'], main: 'status' },
}

const STATE_BYTES = 1024 * 1024

/**
 * Deletes containers without a process, in the order of both runtimes: the cgroups of all hierarchies, the state files, then
 * their folder. Before that, crun kills what is left in the cgroup, as the agent has done.
 */
export class NativeDelete {
  readonly #os: Os
  readonly #options: Pick<RuntimeOptions, 'kind' | 'root'>
  readonly #program: RuntimeFile

  constructor(os: Os, options: Pick<RuntimeOptions, 'kind' | 'root'>, program: RuntimeFile) {
    this.#os = os
    this.#options = options
    this.#program = program
  }

  /** Resolves with false when the runtime must delete: for hooks, another version, an unexpected state or a failed step. */
  async delete(container: EndedContainer): Promise<boolean> {
    if ((container.spec.Hooks?.Poststop ?? []).length > 0) return false
    try {
      if (!(await this.#isVerified())) return false
      const root = await this.#os.scratch.openFolder(`${this.#options.root}/state`)
      try {
        return await this.#deleteIn(root, container)
      } finally {
        await root.close()
      }
    } catch {
      return false
    }
  }

  async #deleteIn(root: ScratchFolder, container: EndedContainer): Promise<boolean> {
    const { all, main } = FILES[this.#options.kind]
    const state = await root.open(container.id)
    try {
      const names = await state.names(all.length + 1)
      if (names.some((name) => !all.includes(name))) return false
      if (names.includes(main)) {
        if (!(await this.#isStateOf(container, state))) return false
        await container.clear()
      } else if (names.some((name) => all.indexOf(name) < all.indexOf(main))) return false
      for (const name of all) if (names.includes(name)) await state.removeFile(name)
    } finally {
      await state.close()
    }
    await root.removeFolder(container.id)
    return true
  }

  async #isStateOf(container: EndedContainer, state: ScratchFolder): Promise<boolean> {
    const read = async (name: string): Promise<unknown> => JSON.parse(await state.readText(name, STATE_BYTES))
    return this.#options.kind === 'runc'
      ? isStateOfRunc(await read('state.json'), container)
      : isStateOfCrun(await read('status'), await read('config.json'), container)
  }

  async #isVerified(): Promise<boolean> {
    const version = await (await this.#program.look())?.version()
    return version !== undefined && VERIFIED_VERSIONS[this.#options.kind].includes(version)
  }
}

function isStateOfRunc(state: unknown, { id, initPid, cgroupPath }: EndedContainer): boolean {
  const cgroups = Object.entries(Object(propertyOf(state, 'cgroup_paths')))
  return (
    propertyOf(state, 'id') === id &&
    propertyOf(state, 'init_process_pid') === initPid &&
    propertyOf(state, 'intel_rdt_path') === '' &&
    hasNone(propertyOf(propertyOf(propertyOf(state, 'config'), 'Hooks'), 'poststop')) &&
    cgroups.length > 0 &&
    cgroups.every(([, path]) => isCgroup(path, cgroupPath))
  )
}

function isStateOfCrun(status: unknown, config: unknown, { initPid, cgroupPath }: EndedContainer): boolean {
  return (
    propertyOf(status, 'pid') === initPid &&
    propertyOf(status, 'cgroup-path') === cgroupPath &&
    propertyOf(status, 'systemd-cgroup') === false &&
    propertyOf(status, 'intelrdt') === undefined &&
    hasNone(propertyOf(propertyOf(config, 'hooks'), 'poststop')) &&
    propertyOf(propertyOf(config, 'linux'), 'intelRdt') === undefined
  )
}

function isCgroup(path: unknown, cgroupPath: string): boolean {
  if (typeof path !== 'string' || !path.startsWith('/sys/fs/cgroup') || !path.endsWith(cgroupPath))
    return false
  return /^(\/[^/]+)?$/.test(path.slice('/sys/fs/cgroup'.length, -cgroupPath.length))
}

function hasNone(hooks: unknown): boolean {
  return hooks === undefined || hooks === null || (Array.isArray(hooks) && hooks.length === 0)
}
