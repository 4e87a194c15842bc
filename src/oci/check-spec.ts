import type { Linux, LinuxResources, LinuxSeccomp, Mount, Process, Root, Spec } from '../gen/oci.ts'
import { checkAbsolutePath, checkNoParentPath, checkOneOf, checkText, invalidField } from './check-field.ts'
import { checkProcess } from './check-process.ts'
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
    checkOneOf('Linux.Namespaces', NAMESPACES, type)
    if (path !== '') checkAbsolutePath('Linux.Namespaces.Path', path)
  }
  checkNoParentPath('Linux.CgroupsPath', linux.CgroupsPath.replaceAll(':', '/'))
  for (const { Path: path, Type: type } of linux.Devices) {
    checkAbsolutePath('Linux.Devices.Path', path)
    checkOneOf('Linux.Devices.Type', DEVICES, type)
  }
  if (linux.Resources !== undefined) checkResources(linux.Resources)
  if (linux.Seccomp !== undefined) checkSeccomp(linux.Seccomp)
  if (spec.Hooks !== undefined) checkHooks(spec.Hooks)
}

/** Throws INVALID_ARGUMENT for limits in which something cannot be. */
export function checkResources(resources: LinuxResources): void {
  for (const { Type: type } of resources.Devices) {
    checkOneOf('Linux.Resources.Devices.Type', DEVICE_RULES, type)
  }
}

/** A destination without a slash in front is taken for one below the container's root, as it always was. */
function checkMount({ destination, source, options }: Mount): void {
  if (destination === '') throw invalidField('Mounts.destination', 'it is empty')
  checkNoParentPath('Mounts.destination', destination)
  checkNoParentPath('Mounts.source', source)
  for (const option of options) checkText('Mounts.options', option)
}

const ACTIONS = [
  'KILL',
  'KILL_PROCESS',
  'KILL_THREAD',
  'TRAP',
  'ERRNO',
  'TRACE',
  'ALLOW',
  'LOG',
  'NOTIFY',
].map((name) => `SCMP_ACT_${name}`)

const OPERATORS = ['NE', 'LT', 'LE', 'EQ', 'GE', 'GT', 'MASKED_EQ'].map((name) => `SCMP_CMP_${name}`)

const ARCHITECTURES = [
  ...[
    'NATIVE',
    'X86',
    'X86_64',
    'X32',
    'ARM',
    'AARCH64',
    'MIPS',
    'MIPS64',
    'MIPS64N32',
    'MIPSEL',
    'MIPSEL64',
  ],
  ...['MIPSEL64N32', 'PPC', 'PPC64', 'PPC64LE', 'S390', 'S390X', 'PARISC', 'PARISC64', 'RISCV64'],
].map((name) => `SCMP_ARCH_${name}`)

const FLAGS = ['TSYNC', 'LOG', 'SPEC_ALLOW', 'WAIT_KILLABLE_RECV'].map(
  (name) => `SECCOMP_FILTER_FLAG_${name}`,
)

/** Throws INVALID_ARGUMENT for a word of a seccomp profile that means nothing: a typing error must not open a hole. */
function checkSeccomp(seccomp: LinuxSeccomp): void {
  checkOneOf('Linux.Seccomp.DefaultAction', ACTIONS, seccomp.DefaultAction)
  for (const architecture of seccomp.Architectures) {
    checkOneOf('Linux.Seccomp.Architectures', ARCHITECTURES, architecture)
  }
  for (const flag of seccomp.Flags) checkOneOf('Linux.Seccomp.Flags', FLAGS, flag)
  for (const { Action: action, Args: args } of seccomp.Syscalls) {
    checkOneOf('Linux.Seccomp.Syscalls.Action', ACTIONS, action)
    for (const { Op: operator } of args) checkOneOf('Linux.Seccomp.Syscalls.Args.Op', OPERATORS, operator)
  }
}
