import type { Linux, LinuxResources, Mount, Process, Root, Spec } from '../gen/oci.ts'
import { checkAbsolutePath, checkNoWayUp, checkText, checkWord, invalidField } from './check-field.ts'
import { checkProcess } from './check-process.ts'
import { checkSeccomp } from './check-seccomp.ts'
import { checkHooks } from './hooks.ts'

const NAMESPACES = ['pid', 'network', 'mount', 'ipc', 'uts', 'user', 'cgroup', 'time']
const DEVICES = ['b', 'c', 'u', 'p']
/** Nothing stands for all. */
const DEVICE_RULES = ['', 'a', 'b', 'c']

/** The parts of a spec that it must have. */
interface CompleteSpec {
  readonly spec: Spec
  readonly process: Process
  readonly root: Root
  readonly linux: Linux
}

/**
 * Throws INVALID_ARGUMENT, naming the field, for a spec in which something cannot be, before anything is done for it.
 * Runtimes see most of that too, but each in its own words, late, and not all of it.
 */
export function checkSpec({ spec, process, root, linux }: CompleteSpec): void {
  checkProcess(process)
  // Without a path it is what a storage has mounted.
  if (root.Path !== '') checkAbsolutePath('Root.Path', root.Path)
  for (const mount of spec.Mounts) checkMount(mount)
  for (const { Type: type, Path: path } of linux.Namespaces) {
    checkWord('Linux.Namespaces', NAMESPACES, type)
    if (path !== '') checkAbsolutePath('Linux.Namespaces.Path', path)
  }
  checkNoWayUp('Linux.CgroupsPath', linux.CgroupsPath.replaceAll(':', '/'))
  for (const { Path: path, Type: type } of linux.Devices) {
    checkAbsolutePath('Linux.Devices.Path', path)
    checkWord('Linux.Devices.Type', DEVICES, type)
  }
  if (linux.Resources !== undefined) checkResources(linux.Resources)
  if (linux.Seccomp !== undefined) checkSeccomp(linux.Seccomp)
  if (spec.Hooks !== undefined) checkHooks(spec.Hooks)
}

/** Throws INVALID_ARGUMENT for limits in which something cannot be. */
export function checkResources(resources: LinuxResources): void {
  for (const { Type: type } of resources.Devices) {
    checkWord('Linux.Resources.Devices.Type', DEVICE_RULES, type)
  }
}

/** A destination without a slash in front is taken for one below the container's root, as it always was. */
function checkMount({ destination, source, options }: Mount): void {
  if (destination === '') throw invalidField('Mounts.destination', 'it is empty')
  checkNoWayUp('Mounts.destination', destination)
  checkNoWayUp('Mounts.source', source)
  for (const option of options) checkText('Mounts.options', option)
}
