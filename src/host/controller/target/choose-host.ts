import { isWithin } from '../../../base/paths.ts'
import type { Host, Vm } from '../../../gen/microvm/controller/v1/controller.ts'
import type { Specification } from '../../../gen/microvm/instance/v1/instance.ts'
import { qemuMisfit } from '../../qemu/qemu-versions.ts'
import { hostOf } from '../hypervisor-id.ts'

/** The hosts that fit, or why no host does. Those that await this very VM come first, and then the one with the most free memory. */
export type Choice = { readonly hosts: readonly Host[] } | { readonly reason: string }

/** QEMU of the CPU model `host` shows the guest the processor as it is. */
const HOST_CPU = 'host'
const MOST_REASONS = 8

/** Chooses where a VM can move: to `toHost`, or to any other host than its own. QEMU itself decides later whether it can. */
export function chooseHost(vm: Vm, hosts: readonly Host[], toHost: string): Choice {
  const obstacles = obstaclesOf(vm)
  if (obstacles.length > 0) return { reason: obstacles.join('; ') }
  const here = vm.authoritative === undefined ? '' : hostOf(vm.authoritative)
  if (toHost === here) return { reason: `host ${toHost}: the VM runs there, want another host` }
  const source = hosts.find(({ id }) => id === here)
  if (toHost !== '') {
    const host = hosts.find(({ id }) => id === toHost)
    const reason = host === undefined ? 'is not there' : misfit(vm, host, source)
    return host === undefined || reason !== undefined
      ? { reason: `host ${toHost}: ${reason}` }
      : { hosts: [host] }
  }
  const others = hosts
    .filter(({ id }) => id !== here)
    .map((host) => ({ host, reason: misfit(vm, host, source) ?? lacksPlace(vm, host) }))
  const fitting = others.flatMap(({ host, reason }) => (reason === undefined ? [host] : []))
  if (fitting.length > 0)
    return {
      hosts: fitting.sort(
        (one, other) =>
          Number(one.onlyVm === '') - Number(other.onlyVm === '') ||
          Number(other.memoryMib - one.memoryMib) ||
          compare(one, other),
      ),
    }
  const reasons = others.slice(0, MOST_REASONS).map(({ host, reason }) => `${host.id}: ${reason}`)
  return {
    reason: `no host that fits${others.length === 0 ? ': no other is there' : `: ${reasons.join('; ')}`}`,
  }
}

function compare(one: Host, other: Host): number {
  return one.id < other.id ? -1 : 1
}

/** Why the host cannot run the VM; undefined when nothing is against it. */
function misfit(vm: Vm, host: Host, source: Host | undefined): string | undefined {
  const needs = vm.settings?.needs
  if (host.draining) return 'takes no more machines'
  if (host.onlyVm !== '' && host.onlyVm !== `${vm.namespace}/${vm.name}`) return `takes ${host.onlyVm} only`
  const { cpuModel = '', memoryMib = 0n, qemuVersion: from = '' } = needs ?? {}
  const machine = vm.settings?.specification?.board?.machine ?? ''
  const qemu = qemuMisfit({ from, to: host.qemuVersion, machine })
  if (qemu !== undefined) return qemu
  if (cpuModel === HOST_CPU && host.cpu !== source?.cpu)
    return `has another processor, and the CPU model is ${HOST_CPU}`
  if (cpuModel !== '' && cpuModel !== HOST_CPU && !host.cpuModels.includes(cpuModel))
    return `does not run CPU model ${cpuModel}`
  if (host.memoryMib < memoryMib) return `has ${host.memoryMib} MiB of memory free, want ${memoryMib}`
  const volume = vm.volumes.find(
    ({ host: owner, path }) => owner === '' && !isInSome(path, host.sharedFolders),
  )
  return volume && `does not reach volume ${volume.key} at ${volume.path}`
}

/** Only where the host is not named: another one may be given other bridges for its cards, and other files for its disks. */
function lacksPlace({ settings }: Vm, { networks, onlyVm, sharedFolders }: Host): string | undefined {
  if (onlyVm !== '') return undefined
  const { needs } = settings ?? {}
  const network = networks.length > 0 && needs?.networks.find((each) => !networks.includes(each))
  if (network) return `has no network ${network}`
  const path = sharedFolders.length > 0 && needs?.sharedPaths.find((each) => !isInSome(each, sharedFolders))
  return path ? `does not reach disk ${path}` : undefined
}

function isInSome(path: string, folders: readonly string[]): boolean {
  return folders.some((folder) => isWithin(path, folder))
}

/** What keeps the VM from moving anywhere. */
function obstaclesOf({ settings }: Vm): readonly string[] {
  return [...inSpecification(settings?.specification), ...(settings?.needs?.obstacles ?? [])]
}

function inSpecification({
  devices,
  backends,
}: Pick<Specification, 'devices' | 'backends'> = NOTHING): string[] {
  return Object.entries(devices).flatMap(([key, { backend, disk, share }]) => {
    if (disk?.nvme) return [`device ${key}: an nvme disk does not move`]
    if (share === undefined) return []
    const kind = backends[backend]?.folder === undefined ? 'virtio-fs' : '9p'
    return [`device ${key}: a ${kind} share does not move`]
  })
}

const NOTHING = { devices: {}, backends: {} }
