import type { Linux, LinuxResources, LinuxSeccomp, Mount, Process, Root, Spec } from '../../gen/oci.ts'
import { annotatedVsock } from '../denied-calls.ts'
import { checkHooks } from '../hooks.ts'
import {
  checkAbsolutePath,
  checkDeviceNumbers,
  checkNoParentPath,
  checkOneOf,
  checkText,
  invalidField,
} from './check-field.ts'
import { checkProcess } from './check-process.ts'

export const NAMESPACES = ['pid', 'network', 'mount', 'ipc', 'uts', 'user', 'cgroup', 'time']
export const DEVICES = ['b', 'c', 'u', 'p']
/** The types of device rules; the empty one means all. */
export const DEVICE_RULES = ['', 'a', 'b', 'c']
/** Like 0, it matches any number. */
const ANY_NUMBER = -1n
const BLOCK_DEVICES = [
  ['WeightDevice', 'weightDevice'],
  ['ThrottleReadBpsDevice', 'throttleReadBpsDevice'],
  ['ThrottleWriteBpsDevice', 'throttleWriteBpsDevice'],
  ['ThrottleReadIOPSDevice', 'throttleReadIOPSDevice'],
  ['ThrottleWriteIOPSDevice', 'throttleWriteIOPSDevice'],
] as const
/** How mounts of the guest propagate to the container; the empty one is left to the runtime. */
export const PROPAGATIONS = [
  '',
  ...['shared', 'slave', 'private', 'unbindable'].flatMap((kind) => [kind, `r${kind}`]),
]

interface CompleteSpec {
  readonly spec: Spec
  readonly process: Process
  readonly root: Root
  readonly linux: Linux
}

/**
 * Throws INVALID_ARGUMENT, naming the field, for an invalid spec, before any work is done for it. Runtimes detect most
 * errors too, but late, incompletely and each with its own texts.
 */
export function checkSpec({ spec, process, root, linux }: CompleteSpec): void {
  checkProcess(process)
  // An empty path means the rootfs that a storage has mounted.
  if (root.Path !== '') checkAbsolutePath('root.path', root.Path)
  for (const mount of spec.Mounts) checkMount(mount)
  for (const [index, { Type: type, Path: path }] of linux.Namespaces.entries()) {
    checkOneOf(`linux.namespaces[${index}].type`, NAMESPACES, type)
    if (path !== '') checkAbsolutePath(`linux.namespaces[${index}].path`, path)
  }
  checkOneOf('linux.rootfsPropagation', PROPAGATIONS, linux.RootfsPropagation)
  checkNoParentPath('linux.cgroupsPath', linux.CgroupsPath.replaceAll(':', '/'))
  for (const [index, device] of linux.Devices.entries()) {
    const field = `linux.devices[${index}]`
    checkAbsolutePath(`${field}.path`, device.Path)
    checkOneOf(`${field}.type`, DEVICES, device.Type)
    // A fifo has no device numbers.
    if (device.Type !== 'p') checkDeviceNumbers(field, device)
  }
  if (linux.Resources !== undefined) checkResources(linux.Resources)
  if (linux.Seccomp !== undefined) checkSeccomp(linux.Seccomp)
  if (spec.Hooks !== undefined) checkHooks(spec.Hooks)
  // Throws for an unknown word.
  annotatedVsock(spec)
}

export function checkResources(resources: LinuxResources): void {
  for (const [index, rule] of resources.Devices.entries()) {
    const { Type: type, Access: access } = rule
    const field = `linux.resources.devices[${index}]`
    checkOneOf(`${field}.type`, DEVICE_RULES, type)
    if (!/^[rwm]*$/.test(access)) throw invalidField(`${field}.access`, `unknown value "${access}"`)
    checkDeviceNumbers(field, rule, ANY_NUMBER)
  }
  for (const [list, field] of BLOCK_DEVICES) {
    for (const [index, device] of (resources.BlockIO?.[list] ?? []).entries())
      checkDeviceNumbers(`linux.resources.blockIO.${field}[${index}]`, device)
  }
}

/** A relative destination is accepted and means one below the container's root. */
function checkMount({ destination, source, options }: Mount): void {
  if (destination === '') throw invalidField('Mounts.destination', 'empty')
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

export const FLAGS = ['TSYNC', 'LOG', 'SPEC_ALLOW', 'WAIT_KILLABLE_RECV'].map(
  (name) => `SECCOMP_FILTER_FLAG_${name}`,
)

/**
 * Throws INVALID_ARGUMENT for an unknown word in a seccomp profile, because a typo must not weaken the profile. Unknown
 * architectures were passed over (see `normalizeSpec`).
 */
function checkSeccomp(seccomp: LinuxSeccomp): void {
  checkOneOf('linux.seccomp.defaultAction', ACTIONS, seccomp.DefaultAction)
  for (const flag of seccomp.Flags) checkOneOf('linux.seccomp.flags', FLAGS, flag)
  for (const [index, { Action: action, Args: args }] of seccomp.Syscalls.entries()) {
    const field = `linux.seccomp.syscalls[${index}]`
    checkOneOf(`${field}.action`, ACTIONS, action)
    for (const { Op: operator } of args) checkOneOf(`${field}.args.op`, OPERATORS, operator)
  }
}
