import type { LinuxDeviceCgroup, LinuxResources, Process, Spec } from '../gen/oci.ts'
import { isEmpty, type Json } from './json.ts'

/**
 * The version of the OCI runtime specification that every `config.json` names, whatever the request says. A request has
 * no field that is newer, and a runtime refuses versions newer than its own (crun 1.28 refuses 1.3.0).
 */
export const OCI_VERSION = '1.0.2'

/** Converts a checked spec to `config.json`; each field becomes the member of its name in the OCI specification. */
export function runtimeConfig({
  Annotations,
  Hooks,
  Hostname,
  Linux,
  Mounts,
  Process: process,
  Root,
}: Spec): Json {
  const linux = Linux && { ...Linux, Resources: Linux.Resources && withRules(Linux.Resources) }
  const Process = process && withDefaults(process)
  const members = membersOf({ Process, Root, Hostname, Mounts, Hooks, Annotations, Linux: linux }, 'spec')
  return { ociVersion: OCI_VERSION, ...members }
}

export function processConfig(process: Process): Json {
  return membersOf(withDefaults(process), 'process')
}

export function resourcesConfig(resources: LinuxResources): Json {
  return membersOf(withRules(resources), 'resources')
}

function withDefaults(process: Process): object {
  return { ...process, Cwd: process.Cwd || '/', User: process.User ?? { UID: 0, GID: 0 } }
}

function withRules(resources: LinuxResources): object {
  return { ...resources, Devices: resources.Devices.map(deviceRule) }
}

/** A negative number stands for all devices. */
function deviceRule({ Allow, Type, Major, Minor, Access }: LinuxDeviceCgroup): object {
  const [major, minor] = [Major, Minor].map((number) => (number < 0n ? undefined : number))
  return { Allow, Type: Type || 'a', Major: major, Minor: minor, Access }
}

const HOOK = ['path']
const ID_MAPPING = ['hostID', 'containerID', 'size']
const RATE = ['major', 'minor', 'rate']

/**
 * The members that a runtime gets also when they are 0 or empty, by the member that holds their object. All others are left
 * out then: proto3 cannot tell an empty field from an absent one, and a runtime reads an absent member as "not requested".
 */
const KEPT: Readonly<Record<string, readonly string[]>> = {
  // Without it the container would inherit the agent's own value.
  process: ['oomScoreAdj'],
  consoleSize: ['height', 'width'],
  rlimits: ['type', 'hard', 'soft'],
  user: ['uid', 'gid'],
  // With an absent set the process would keep the runtime's capabilities.
  capabilities: ['bounding', 'effective', 'inheritable', 'permitted', 'ambient'],
  root: ['path', 'readonly'],
  mounts: ['destination'],
  prestart: HOOK,
  createRuntime: HOOK,
  createContainer: HOOK,
  startContainer: HOOK,
  poststart: HOOK,
  poststop: HOOK,
  uidMappings: ID_MAPPING,
  gidMappings: ID_MAPPING,
  namespaces: ['type'],
  // Not the mode: nobody could open a node with mode 0.
  devices: ['path', 'type', 'major', 'minor', 'uid', 'gid', 'allow'],
  seccomp: ['defaultAction'],
  // An absent errno means EPERM.
  syscalls: ['names', 'action', 'errnoRet'],
  args: ['index', 'value', 'valueTwo', 'op'],
  weightDevice: ['major', 'minor'],
  throttleReadBpsDevice: RATE,
  throttleWriteBpsDevice: RATE,
  throttleReadIOPSDevice: RATE,
  throttleWriteIOPSDevice: RATE,
  hugepageLimits: ['pageSize', 'limit'],
  priorities: ['name', 'priority'],
}

/** The member of each field: those whose names differ in more than their first letters, and all that were asked for. */
const NAMES = new Map([
  ['errnoret', 'errnoRet'],
  ['Pagesize', 'pageSize'],
])

/** Members that hold a map: its keys are no names of fields. */
const MAPS = ['annotations', 'sysctl']

function membersOf(message: object, holder: string): { [key: string]: Json } {
  const members: { [key: string]: Json } = {}
  for (const [field, value] of Object.entries(message)) {
    const name = nameOf(field)
    const json = jsonOf(value, name)
    if (json === undefined || (name === 'timeout' && Number(json) < 0)) continue
    if (KEPT[holder]?.includes(name) || !isEmpty(json)) members[name] = json
  }
  return members
}

function nameOf(field: string): string {
  const known = NAMES.get(field)
  if (known !== undefined) return known
  const name = field.replace(/^[A-Z]+(?=[A-Z][a-z]|$)|^[A-Z]/, (begin) => begin.toLowerCase())
  NAMES.set(field, name)
  return name
}

function jsonOf(value: unknown, name: string): Json | undefined {
  switch (typeof value) {
    case 'string':
    case 'number':
    case 'bigint':
    case 'boolean':
      return value
    case 'object':
      if (value === null) return undefined
      if (Array.isArray(value)) return value.map((item) => jsonOf(item, name) ?? '')
      return MAPS.includes(name) ? { ...value } : membersOf(value, name)
    default:
      return undefined
  }
}
