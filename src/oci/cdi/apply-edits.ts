import {
  Hooks,
  type Linux,
  type LinuxDevice,
  type LinuxDeviceCgroup,
  LinuxResources,
  type Mount,
  type Process,
  type Spec,
  User,
} from '../../gen/oci.ts'
import type { CdiHook, ContainerEdits, ResolvedNode } from './container-edits.ts'

type Edited = Spec & { readonly Process: Process; readonly Linux: Linux }

/** Edits whose device nodes have been looked up. */
export type ResolvedEdits = ContainerEdits<ResolvedNode>

/** A variable, device or mount of an edit replaces the one of the same name. */
export function withContainerEdits(spec: Edited, edits: readonly ResolvedEdits[]): Edited {
  return edits.reduce(withEdits, spec)
}

function withEdits(spec: Edited, { env, deviceNodes, mounts, hooks, additionalGids }: ResolvedEdits): Edited {
  const user = spec.Process.User ?? User.create()
  return {
    ...spec,
    Mounts: mounts.reduce(withMount, spec.Mounts),
    Hooks: hooks.reduce(withHook, spec.Hooks),
    Process: {
      ...spec.Process,
      Env: env.reduce(withVariable, spec.Process.Env),
      User: withGroups(spec.Process.User, additionalGids),
    },
    Linux: deviceNodes.reduce((linux, node) => withNode(linux, node, user), spec.Linux),
  }
}

function withVariable(environment: string[], entry: string): string[] {
  const name = entry.slice(0, entry.indexOf('=') + 1)
  const others = environment.filter((each) => !each.startsWith(name))
  return [...others, entry]
}

/** Inserts a mount before those below it, which it would otherwise hide. */
function withMount(mounts: Mount[], mount: Mount): Mount[] {
  const others = mounts.filter(({ destination }) => destination !== mount.destination)
  const below = others.findIndex(({ destination }) => destination.startsWith(`${mount.destination}/`))
  return others.toSpliced(below === -1 ? others.length : below, 0, mount)
}

function withHook(hooks: Hooks | undefined, { list, hook }: CdiHook): Hooks {
  const all = hooks ?? Hooks.create()
  return { ...all, [list]: [...all[list], hook] }
}

/** Adds groups except 0, which means "not set" in CDI. */
function withGroups(user: User | undefined, gids: readonly number[]): User | undefined {
  const added = gids.filter((gid) => gid !== 0)
  if (added.length === 0) return user
  const known = user ?? User.create()
  return { ...known, AdditionalGids: [...new Set([...known.AdditionalGids, ...added])] }
}

function withNode(linux: Linux, node: ResolvedNode, user: User): Linux {
  const resources = linux.Resources ?? LinuxResources.create()
  return {
    ...linux,
    Devices: [...linux.Devices.filter(({ Path }) => Path !== node.path), deviceOf(node, user)],
    Resources: { ...resources, Devices: [...resources.Devices, ...rulesFor(node)] },
  }
}

/** A node without an owner is given to the container's user, who could not open it otherwise. */
function deviceOf({ path, type, major, minor, fileMode, uid, gid }: ResolvedNode, user: User): LinuxDevice {
  return {
    Path: path,
    Type: type,
    Major: BigInt(major),
    Minor: BigInt(minor),
    FileMode: fileMode,
    UID: uid ?? user.UID,
    GID: gid ?? user.GID,
  }
}

/** The cgroup rules of a node; only character and block devices need one. */
function rulesFor({ type, major, minor, permissions = 'rwm' }: ResolvedNode): readonly LinuxDeviceCgroup[] {
  if (type === 'p' || permissions === 'none') return []
  const kind = type === 'b' ? 'b' : 'c'
  return [{ Allow: true, Type: kind, Major: BigInt(major), Minor: BigInt(minor), Access: permissions }]
}
