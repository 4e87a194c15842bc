import { messageOf } from '../../base/errors.ts'
import {
  type Capability,
  type GetCapabilitiesResponse,
  Capability_Kind as Kind,
} from '../../gen/microvm/agent/v1/introspection.ts'
import { DEVICE_TYPE_REASONS } from '../../handlers/device/handler-table.ts'
import { STORAGE_DRIVER_REASONS } from '../../handlers/storage/driver-table.ts'
import { readIfPresent } from '../../hotplug/sysfs.ts'
import type { Files } from '../../os/files/files.ts'

/** `missing` is the reason why the guest lacks the feature; `detail` holds further facts. */
export interface Feature {
  readonly name: string
  readonly missing?: string | undefined
  readonly detail?: string
}

export async function getCapabilities(dependencies: {
  readonly files: Files
  readonly methods: readonly string[]
  /** Features that depend on settings or on the image. */
  readonly features: () => Promise<readonly Feature[]>
  readonly programs: readonly string[]
}): Promise<GetCapabilitiesResponse> {
  const { files, methods, features, programs } = dependencies
  const found = [await kernelFeature(files, 'limits of containers', containerLimits), ...(await features())]
  const kernel = await Promise.all([...KERNEL].map(([name, look]) => kernelFeature(files, name, look)))
  const tools = await Promise.all(programs.map((path) => programAt(files, path)))
  return {
    capabilities: [
      ...methods.map((name) => capability(Kind.RPC, { name, missing: undefined })),
      ...reasons(Kind.STORAGE_DRIVER, STORAGE_DRIVER_REASONS),
      ...reasons(Kind.DEVICE_TYPE, DEVICE_TYPE_REASONS),
      ...kernel.map((feature) => capability(Kind.KERNEL, feature)),
      ...tools.map((feature) => capability(Kind.TOOL, feature)),
      ...found.map((feature) => capability(Kind.FEATURE, feature)),
    ],
  }
}

function capability(kind: Kind, { name, missing, detail = '' }: Feature): Capability {
  return { kind, name, enabled: missing === undefined, reason: missing ?? '', detail }
}

function reasons(kind: Kind, all: ReadonlyMap<string, string | undefined>): readonly Capability[] {
  return [...all].map(([name, missing]) => capability(kind, { name, missing }))
}

type Look = (files: Files) => Promise<{ readonly missing: string } | { readonly detail: string }>

async function kernelFeature(files: Files, name: string, look: Look): Promise<Feature> {
  const found = await look(files).catch((error: unknown) => ({ missing: messageOf(error) }))
  return 'missing' in found
    ? { name, missing: found.missing }
    : { name, missing: undefined, detail: found.detail }
}

const KERNEL: ReadonlyMap<string, Look> = new Map([
  ['release', textOf('/proc/sys/kernel/osrelease')],
  ['cgroup v2', textOf('/sys/fs/cgroup/cgroup.controllers')],
  ['vsock', present('/dev/vsock')],
  ['seccomp', textOf('/proc/sys/kernel/seccomp/actions_avail')],
  ['pressure', present('/proc/pressure/memory')],
  ['user namespaces', textOf('/proc/sys/user/max_user_namespaces')],
  ['fw_cfg', present('/sys/firmware/qemu_fw_cfg')],
  ['memory probe', present('/sys/devices/system/memory/probe')],
  ['device-mapper', present('/sys/devices/virtual/misc/device-mapper')],
  ['hugetlb', present('/sys/kernel/mm/hugepages')],
  ...['overlay', 'ext4', 'xfs', 'erofs', 'tmpfs', 'virtiofs', '9p', 'fuse'].map(
    (type): readonly [string, Look] => [`file system ${type}`, fileSystem(type)],
  ),
])

/** The controllers of the limits that every shim sets. */
const LIMITING_CONTROLLERS = ['cpu', 'cpuset', 'memory', 'pids']

/** A container that asks for a limit without a controller is refused. */
async function containerLimits(files: Files): ReturnType<Look> {
  const unified = await readIfPresent(files, '/sys/fs/cgroup/cgroup.controllers')
  const isThere = async (controller: string) =>
    unified === undefined
      ? (await files.stat(`/sys/fs/cgroup/${controller}`)) !== undefined
      : unified.trim().split(' ').includes(controller)
  const there = await Promise.all(LIMITING_CONTROLLERS.map(isThere))
  const missing = LIMITING_CONTROLLERS.filter((_, index) => !there[index])
  const version = unified === undefined ? 'cgroup v1' : 'cgroup v2'
  return missing.length === 0
    ? { detail: version }
    : { missing: `${version} has no controller for ${missing.join(', ')}` }
}

function present(path: string): Look {
  return async (files) =>
    (await files.stat(path)) === undefined ? { missing: `${path} does not exist` } : { detail: path }
}

function textOf(path: string): Look {
  return async (files) => {
    const text = await readIfPresent(files, path)
    return text === undefined ? { missing: `${path} does not exist` } : { detail: text.replaceAll('\n', ' ') }
  }
}

function fileSystem(type: string): Look {
  return async (files) => {
    const known = (await files.readText('/proc/filesystems')).split('\n').map((line) => line.split('\t')[1])
    if (known.includes(type)) return { detail: 'registered' }
    const release = (await files.readText('/proc/sys/kernel/osrelease')).trim()
    const modules = (await readIfPresent(files, `/lib/modules/${release}/modules.dep`)) ?? ''
    const module = modules.split('\n').find((line) => line.split(':', 1)[0]?.includes(`/${type}.ko`))
    if (module !== undefined) return { detail: `module ${module.split(':', 1)[0]}` }
    return { missing: `not in /proc/filesystems, and /lib/modules/${release} has no module ${type}` }
  }
}

async function programAt(files: Files, path: string): Promise<Feature> {
  const status = await files.stat(path).catch(() => undefined)
  return { name: path, missing: status === undefined ? 'does not exist' : undefined }
}
