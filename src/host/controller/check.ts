import { isAbsolute, normalize } from 'node:path'
import { type Host, type Needs, Vm, type VmSettings } from '../../gen/microvm/controller/v1/controller.ts'
import { LeaseMode, type MigrationSwitchoverRequest_VolumePlace as VolumePlace } from '../../gen/vm.ts'
import { versionOf } from '../qemu/qemu-versions.ts'
import { CONTROLLER, HOST_ID } from '../tls/credentials.ts'
import { parseEndpoint } from '../tls/endpoint.ts'
import { invalid, quoted } from './hypervisor-id.ts'

const MOST_LIST = 256
const MOST_WORD_BYTES = 256
/** A processor is named by all its features, too. */
const MOST_CPU_BYTES = 16 * 1024
const MOST_VOLUMES = 64
const MOST_PATH_BYTES = 4095
/** Pages of records fit into one answer of etcd, and those of many VMs into etcd. */
const MOST_RECORD_BYTES = 64 * 1024
const MOST_TEXT_BYTES = 512

/** Bounds of a lease's time. */
const SHORTEST_LEASE_MS = 1000n
const LONGEST_LEASE_MS = 3_600_000n

/** Throws INVALID_ARGUMENT naming the field that is wrong. */
export function checkHost({
  id,
  endpoint,
  qemuVersion,
  cpu,
  cpuModels,
  networks,
  sharedFolders,
  onlyVm,
}: Host): void {
  if (!HOST_ID.test(id) || id === CONTROLLER)
    throw invalid(`host.id: ${quoted(id)}, want 1 to 63 of a-z, 0-9, . and -, and not "${CONTROLLER}"`)
  if (parseEndpoint(endpoint) === undefined)
    throw invalid(`host.endpoint: ${quoted(endpoint)}, want HOST:PORT, such as 192.0.2.1:7443`)
  if (versionOf(qemuVersion) === undefined)
    throw invalid(`host.qemu_version: ${quoted(qemuVersion)}, want numbers with dots first, such as 7.2.22`)
  checkWords('host.cpu', [cpu], MOST_CPU_BYTES)
  checkWords('host.cpu_models', cpuModels)
  checkWords('host.networks', networks)
  checkWords('host.shared_folders', sharedFolders)
  checkWords('host.only_vm', [onlyVm])
  for (const folder of sharedFolders) checkPath('host.shared_folders', folder)
}

/** Throws INVALID_ARGUMENT naming the field that is wrong. */
export function checkSettings(settings: VmSettings | undefined): VmSettings {
  if (settings === undefined) throw invalid('settings: missing, want what the VM is')
  const { leaseMode, leaseTtlMs, needs } = settings
  if (leaseMode !== LeaseMode.LM_STORAGE_LOCKING && leaseMode !== LeaseMode.LM_FULL_LEASES)
    throw invalid(`settings.lease_mode: ${leaseMode}, want LM_STORAGE_LOCKING or LM_FULL_LEASES`)
  const hasLeases = leaseMode === LeaseMode.LM_FULL_LEASES
  if (!hasLeases && leaseTtlMs !== 0n)
    throw invalid(`settings.lease_ttl_ms: ${leaseTtlMs}, want 0 with LM_STORAGE_LOCKING`)
  if (hasLeases && (leaseTtlMs < SHORTEST_LEASE_MS || leaseTtlMs > LONGEST_LEASE_MS))
    throw invalid(`settings.lease_ttl_ms: ${leaseTtlMs}, want ${SHORTEST_LEASE_MS} to ${LONGEST_LEASE_MS}`)
  if (needs !== undefined) checkNeeds(needs)
  return settings
}

/** Throws INVALID_ARGUMENT for a record that is too large. */
export function checkSize(vm: Vm): void {
  const bytes = Vm.encode(vm).finish().length
  if (bytes > MOST_RECORD_BYTES) throw invalid(`vm: ${bytes} bytes, want at most ${MOST_RECORD_BYTES}`)
}

function checkNeeds({ cpuModel, qemuVersion, networks, obstacles, sharedPaths }: Needs): void {
  checkWords('settings.needs.cpu_model', [cpuModel])
  if (qemuVersion !== '' && versionOf(qemuVersion) === undefined)
    throw invalid(
      `settings.needs.qemu_version: ${quoted(qemuVersion)}, want numbers with dots first, such as 7.2`,
    )
  checkWords('settings.needs.networks', networks)
  if (sharedPaths.length > MOST_VOLUMES)
    throw invalid(`settings.needs.shared_paths: ${sharedPaths.length}, want at most ${MOST_VOLUMES}`)
  for (const path of sharedPaths) checkPath('settings.needs.shared_paths', path)
  if (obstacles.length > MOST_LIST) throw invalid(`settings.needs.obstacles: more than ${MOST_LIST}`)
  for (const text of obstacles)
    if (text === '' || Buffer.byteLength(text) > MOST_TEXT_BYTES)
      throw invalid(`settings.needs.obstacles: ${quoted(text)}, want 1 to ${MOST_TEXT_BYTES} bytes`)
}

/** Throws INVALID_ARGUMENT naming the volume that is wrong. */
export function checkVolumes(volumes: readonly VolumePlace[]): void {
  if (volumes.length > MOST_VOLUMES) throw invalid(`volumes: ${volumes.length}, want at most ${MOST_VOLUMES}`)
  const keys = new Set<string>()
  for (const { key, host, path } of volumes) {
    checkWords('volumes.key', [key])
    if (key === '') throw invalid('volumes.key: missing, want the key of the backend')
    if (keys.has(key)) throw invalid(`volumes.key: ${quoted(key)} twice, want it once`)
    keys.add(key)
    if (host !== '' && !HOST_ID.test(host))
      throw invalid(`volumes.host: ${quoted(host)}, want the id of a host, or none for shared storage`)
    checkPath('volumes.path', path)
  }
}

function checkPath(field: string, path: string): void {
  if (!isAbsolute(path) || normalize(path) !== path || Buffer.byteLength(path) > MOST_PATH_BYTES)
    throw invalid(`${field}: ${quoted(path)}, want an absolute path without . and ..`)
}

function checkWords(field: string, words: readonly string[], mostBytes = MOST_WORD_BYTES): void {
  if (words.length > MOST_LIST) throw invalid(`${field}: ${words.length}, want at most ${MOST_LIST}`)
  for (const word of words)
    if (Buffer.byteLength(word) > mostBytes || /\p{Cc}/u.test(word))
      throw invalid(`${field}: ${quoted(word)}, want at most ${mostBytes} bytes without control characters`)
}
