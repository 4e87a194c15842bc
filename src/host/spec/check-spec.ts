import { checkBackend } from './check-backend.ts'
import { checkBoard } from './check-board.ts'
import { checkDevice } from './check-device.ts'
import { checkPlaces } from './check-places.ts'
import { BACKEND_FIELDS, DEVICE_FIELDS, jsonName, pathOf, refuse, shown } from './component-path.ts'
import { MAX_COMPONENTS } from './limits.ts'
import type { Backend, Device, VmSpec } from './spec.ts'

type Bus = Extract<Device, { kind: 'root-port' | 'pci-bridge' }>

/** The backends that each kind of device accepts. */
const BACKENDS_OF: Readonly<Record<Exclude<Device, Bus>['kind'], readonly Backend['kind'][]>> = {
  disk: ['file'],
  nvdimm: ['file'],
  nic: ['user-network', 'passt', 'tap'],
  vsock: ['vhost-vsock', 'vsock-daemon', 'vhost-user'],
  serial: ['console'],
  'virtio-console': ['console'],
  'fw-cfg': ['content'],
  share: ['virtiofsd', 'vhost-user', 'folder'],
}

/**
 * Throws INVALID_ARGUMENT naming the path when no machine can be made from the specification: a backend that is missing,
 * unsuitable, shared or unused, a PCI slot used twice, a device that the machine type lacks.
 */
export function checkSpec(spec: VmSpec): void {
  checkCount(Object.keys(spec.devices).length + Object.keys(spec.backends).length)
  checkBoard(spec)
  for (const key of Object.keys(spec.devices)) {
    if (Object.hasOwn(spec.backends, key))
      refuse(pathOf('devices', key), 'key of a backend too, want another')
  }
  const users = new Map<string, string>()
  for (const [key, device] of Object.entries(spec.devices)) {
    checkUse(key, device, spec, users)
    checkDevice(key, device, spec)
  }
  for (const [key, backend] of Object.entries(spec.backends)) {
    if (!users.has(key)) refuse(pathOf('backends', key), 'no device uses it')
    checkBackend(key, backend)
  }
  checkPlaces(spec)
  checkOnlyOnes(spec)
  if (spec.memory !== undefined) checkPrivateMemory(spec.backends)
}

/** The backends whose daemons read and write the guest's memory themselves. */
const MAPPING: ReadonlySet<Backend['kind']> = new Set(['vhost-user', 'vsock-daemon', 'virtiofsd'])

/** Whether a daemon reads and writes the guest's memory itself. */
export function needsSharedMemory(backends: VmSpec['backends']): boolean {
  return Object.values(backends).some(({ kind }) => MAPPING.has(kind))
}

/**
 * Throws INVALID_ARGUMENT for a daemon that would map the memory of a template, and not what its guest has written. QEMU 7.2 makes
 * such a device without a word.
 */
export function checkPrivateMemory(backends: VmSpec['backends']): void {
  for (const [key, { kind }] of Object.entries(backends)) {
    if (!MAPPING.has(kind)) continue
    const reason = 'vhost-user maps the memory of the template itself'
    refuse(pathOf('backends', key, BACKEND_FIELDS[kind]), reason)
  }
}

/** Throws INVALID_ARGUMENT for more components than a specification may have. */
export function checkCount(count: number, at = 'specification'): void {
  if (count > MAX_COMPONENTS) {
    refuse(at, `${count} devices and backends, want at most ${MAX_COMPONENTS}`)
  }
}

/**
 * Throws INVALID_ARGUMENT for what only a machine of one run may have: QEMU's own network, and a machine type that is
 * another one in each QEMU.
 */
export function checkCanBeKept(spec: VmSpec): void {
  const { machine } = spec.board
  const versioned = versionedMachine(machine)
  if (versioned !== machine) {
    refuse('board.machine', `${machine} is another machine in each QEMU, want ${versioned}`)
  }
  for (const [key, backend] of Object.entries(spec.backends)) {
    if (backend.kind !== 'user-network') continue
    const reason = "QEMU's own network takes the guest's packets apart in QEMU itself, want passt or tap"
    refuse(pathOf('backends', key, BACKEND_FIELDS[backend.kind]), reason)
  }
}

/** The machine type that stays the same in each QEMU. */
export function versionedMachine(machine: string): string {
  return { q35: 'pc-q35-7.2', pc: 'pc-i440fx-7.2' }[machine] ?? machine
}

/** What a caller should know about a specification that can be used. */
export function warningsOf(spec: VmSpec): readonly string[] {
  const scratch = Object.entries(spec.backends).flatMap(([key, backend]) =>
    backend.kind === 'file' && backend.access === 'scratch'
      ? [
          `${pathOf('backends', key)}: cannot be replaced while the machine runs, because its access is SCRATCH`,
        ]
      : [],
  )
  if (spec.board.machine !== 'microvm') return scratch
  return [
    'board.machine: microvm has no versions, so another QEMU may make another machine of it',
    ...scratch,
  ]
}

function checkUse(key: string, device: Device, spec: VmSpec, users: Map<string, string>): void {
  if (device.kind === 'root-port' || device.kind === 'pci-bridge') return
  const at = pathOf('devices', key, 'backend')
  const name = device.backend
  const backend = Object.hasOwn(spec.backends, name) ? spec.backends[name] : undefined
  if (backend === undefined) refuse(at, `${shown(name)}: no such backend`)
  const other = users.get(name)
  if (other !== undefined) refuse(at, `${shown(name)}: already used by ${pathOf('devices', other)}`)
  users.set(name, key)
  if (BACKENDS_OF[device.kind].includes(backend.kind)) return
  const wanted = BACKENDS_OF[device.kind].map((kind) => jsonName(BACKEND_FIELDS[kind])).join(', ')
  const what = `${jsonName(BACKEND_FIELDS[backend.kind])} not possible for ${jsonName(DEVICE_FIELDS[device.kind])}`
  refuse(at, `${shown(name)}: ${what}, want ${wanted}`)
}

/** What a machine has only one of, or may have several of only by different names. */
function checkOnlyOnes(spec: VmSpec): void {
  const taken = new Map<string, string>()
  for (const [key, device] of Object.entries(spec.devices)) {
    const unique = uniqueOf(device)
    if (unique === undefined) continue
    const other = taken.get(unique.what)
    const field = unique.field === undefined ? [] : [unique.field]
    const at = pathOf('devices', key, DEVICE_FIELDS[device.kind], ...field)
    if (other !== undefined) refuse(at, `${unique.what}: ${pathOf('devices', other)} is one already`)
    taken.set(unique.what, key)
  }
}

function uniqueOf(device: Device): { readonly what: string; readonly field?: string } | undefined {
  switch (device.kind) {
    // QEMU's stdin and stdout.
    case 'serial':
    case 'virtio-console':
      return { what: 'console' }
    case 'vsock':
      return { what: 'vsock' }
    case 'share':
      return { what: `share with tag ${shown(device.tag)}`, field: 'tag' }
    case 'fw-cfg':
      return { what: `firmware item ${shown(device.name)}`, field: 'name' }
    default:
      return undefined
  }
}
