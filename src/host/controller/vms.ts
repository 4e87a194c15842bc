import { AgentError } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import type {
  EnsureVmRequest,
  ListVmsRequest,
  ListVmsResponse,
  VmSettings,
} from '../../gen/microvm/controller/v1/controller.ts'
import { Vm } from '../../gen/microvm/controller/v1/controller.ts'
import type {
  HypervisorID,
  MigrationSwitchoverRequest,
  MigrationSwitchoverRequest_VolumePlace as VolumePlace,
} from '../../gen/vm.ts'
import { LeaseMode } from '../../gen/vm.ts'
import { checkSettings, checkSize, checkVolumes } from './check.ts'
import {
  checkedHypervisor,
  checkVmName,
  hostOf,
  hypervisorText,
  invalid,
  isSameHypervisor,
  isSamePod,
  isSameVm,
} from './hypervisor-id.ts'
import type { EtcdClient } from './store/etcd-client.ts'
import { leaseKey, put, remove, runKey, type VmName } from './store/keys.ts'
import type { VmChange, VmRecords } from './store/vm-records.ts'

/** How long it is remembered that a VM was removed, for hypervisors of it that are cut off. */
const REMOVED_SECONDS = 7 * 24 * 3600
const MOST_PAGE = 100
/** That one host runs. Each may have a record of 64 KiB. */
export const MOST_OF_HOST = 2048n

/** Who runs which VM. Each change is one transaction. */
export class Vms {
  readonly #records: VmRecords
  readonly #etcd: EtcdClient
  readonly #log: Logger

  constructor({
    records,
    etcd,
    log,
  }: { readonly records: VmRecords; readonly etcd: EtcdClient; readonly log: Logger }) {
    this.#records = records
    this.#etcd = etcd
    this.#log = log
  }

  /** Makes a VM, whose hypervisor is `us`, or changes what its hypervisor says of it. */
  async ensure(request: EnsureVmRequest, signal: AbortSignal): Promise<Vm> {
    const given = checkedVm(request)
    const { us } = given
    await this.#checkRoom(hostOf(us), nameOf(us))
    let kind = 'unchanged'
    const vm = await this.#records.change(
      nameOf(us),
      (current, revision) => {
        const change = ensured(current, given, revision)
        kind =
          change === undefined ? 'unchanged' : current === undefined || current.removed ? 'made' : 'changed'
        if (change !== undefined) checkSize(change.vm)
        return change
      },
      signal,
      () =>
        precondition(
          `vm ${textOf(nameOf(us))}: the lease of another hypervisor may not have ended, want it ended`,
        ),
    )
    if (vm === undefined) throw new Error('ensure: no VM')
    if (kind !== 'unchanged') this.#logChange(kind, vm)
    return vm
  }

  /** Throws NOT_FOUND. */
  async get(name: VmName): Promise<Vm> {
    checkVmName('namespace', 'name', name)
    const stored = await this.#records.read(name)
    if (stored === undefined || stored.vm.removed) throw notFound(name)
    return stored.vm
  }

  async list({ namespace, pageSize, pageToken }: ListVmsRequest): Promise<ListVmsResponse> {
    if (namespace !== '') checkVmName('namespace', 'name', { namespace, name: 'any' })
    if (pageSize > MOST_PAGE) throw invalid(`page_size: ${pageSize}, want at most ${MOST_PAGE}`)
    const [tokenNamespace = '', name = ''] = pageToken.split('/', 2)
    if (pageToken !== '') checkVmName('page_token', 'page_token', { namespace: tokenNamespace, name })
    const { vms, next } = await this.#records.list(namespace, pageToken, pageSize || MOST_PAGE)
    const shown = vms
      .filter(({ removed }) => !removed)
      .map((vm) => ({ ...vm, settings: withoutSpecification(vm) }))
    return { vms: shown, nextPageToken: next }
  }

  /** Ends a VM, of which `us` must be the hypervisor. Of a VM that is not there, nothing is to be done. */
  async remove(id: HypervisorID | undefined, signal: AbortSignal): Promise<void> {
    const us = checkedHypervisor('us', id)
    const name = nameOf(us)
    const stored = await this.#records.read(name)
    if (stored === undefined || stored.vm.removed) return
    checkAuthoritative(stored.vm, us)
    const etcdLease = await this.#etcd.grantLease(REMOVED_SECONDS)
    const vm = await this.#records.change(
      name,
      (current) => {
        if (current === undefined || current.removed) return undefined
        checkAuthoritative(current, us)
        const { namespace, authoritative, generation } = current
        const removed = Vm.fromPartial({
          namespace,
          name: current.name,
          generation,
          removed: true,
          ...(authoritative && { authoritative }),
        })
        return {
          vm: removed,
          operations: [remove(leaseKey(name)), remove(runKey(hostOf(us), name))],
          etcdLease,
        }
      },
      signal,
    )
    if (vm !== undefined) this.#logChange('removed', vm)
  }

  /**
   * Makes `us` the hypervisor of the VM if that is `them`. Throws FAILED_PRECONDITION otherwise, and when the lease of `them` may
   * not have ended: on another host than the one that `them` moves to, it must have.
   */
  async switchover(request: MigrationSwitchoverRequest, signal: AbortSignal): Promise<void> {
    const us = checkedHypervisor('us', request.us)
    const them = checkedHypervisor('them', request.them)
    if (!isSameVm(us, them)) throw invalid('them: another VM than that of us, want the same one')
    if (isSamePod(us, them) && us.runId <= them.runId)
      throw invalid(`us.run_id: ${us.runId}, want more than that of them, ${them.runId}`)
    checkVolumes(request.volumes)
    const name = nameOf(us)
    const vm = await this.#records.change(
      name,
      (current) => {
        if (current === undefined || current.removed) throw precondition(`vm ${textOf(name)}: not there`)
        checkAuthoritative(current, them)
        const change = switched(current, { us, them, volumes: request.volumes })
        checkSize(change.vm)
        return change
      },
      signal,
      () =>
        precondition(
          `vm ${textOf(name)}: the lease of ${hypervisorText(them)} may not have ended, want it ended`,
        ),
    )
    if (vm !== undefined) this.#logChange('switchover', vm, { from: hypervisorText(them) })
  }

  /** Throws RESOURCE_EXHAUSTED when the host runs as many VMs as it may, and this is another one. */
  async #checkRoom(host: string, name: VmName): Promise<void> {
    if ((await this.#records.countOf(host)) < MOST_OF_HOST) return
    const stored = await this.#records.read(name)
    const { authoritative, removed } = stored?.vm ?? { removed: true }
    if (!removed && authoritative !== undefined && hostOf(authoritative) === host) return
    throw new AgentError('RESOURCE_EXHAUSTED', `host ${host}: runs ${MOST_OF_HOST} VMs, want no more`)
  }

  #logChange(
    kind: string,
    { namespace, name, authoritative, generation }: Vm,
    fields: Readonly<Record<string, string>> = {},
  ): void {
    const hypervisor = authoritative && hypervisorText(authoritative)
    this.#log.info('vm', { vm: `${namespace}/${name}`, kind, hypervisor, generation, ...fields })
  }
}

/** Throws INVALID_ARGUMENT. */
export function checkedVm({ settings, us, volumes }: EnsureVmRequest): EnsuredVm {
  checkVolumes(volumes)
  return { us: checkedHypervisor('us', us), settings: checkSettings(settings), volumes }
}

export function nameOf({ namespace, vmName }: HypervisorID): VmName {
  return { namespace, name: vmName }
}

export function textOf({ namespace, name }: VmName): string {
  return `${namespace}/${name}`
}

/** Throws FAILED_PRECONDITION, naming the hypervisor that runs the VM. */
export function checkAuthoritative(vm: Vm, id: HypervisorID): void {
  const { authoritative } = vm
  if (isSameHypervisor(authoritative, id)) return
  throw precondition(
    `vm ${textOf(vm)}: ${authoritative === undefined ? 'no hypervisor' : hypervisorText(authoritative)} runs it, not ${hypervisorText(id)}`,
  )
}

export function notFound(name: VmName): AgentError {
  return new AgentError('NOT_FOUND', `vm ${textOf(name)}: not there`)
}

function precondition(message: string): AgentError {
  return new AgentError('FAILED_PRECONDITION', message)
}

const NOTHING = new Uint8Array(0)

interface EnsuredVm {
  readonly us: HypervisorID
  readonly settings: VmSettings
  readonly volumes: VolumePlace[]
}

/** A record that is gone leaves nothing to count on from: etcd's revision is greater than any generation that there was. */
function ensured(
  current: Vm | undefined,
  { us, settings, volumes }: EnsuredVm,
  revision: bigint,
): VmChange | undefined {
  const name = nameOf(us)
  const begun = { ...name, authoritative: us, settings, target: undefined, removed: false }
  const at = (generation: bigint) => ({ generation, volumes: ofEpoch(volumes, generation) })
  if (current === undefined || current.removed) {
    return {
      vm: { ...begun, ...at(revision + 1n) },
      operations: [remove(leaseKey(name)), put(runKey(hostOf(us), name), NOTHING)],
    }
  }
  const { authoritative } = current
  if (authoritative !== undefined && isSamePod(authoritative, us) && us.runId > authoritative.runId) {
    checkSameLeases(current, settings)
    return { vm: { ...begun, ...at(current.generation + 1n) }, operations: [remove(leaseKey(name))] }
  }
  if (authoritative !== undefined && hostOf(authoritative) === hostOf(us) && us.runId > authoritative.runId) {
    checkSameLeases(current, settings)
    // Another process with the certificate of this host, on another machine maybe.
    return { vm: { ...begun, ...at(current.generation + 1n) }, wantsNoLease: true }
  }
  if (authoritative !== undefined && hostOf(authoritative) !== hostOf(us) && isFull(current)) {
    checkSameLeases(current, settings)
    checkSameVolumes(current, volumes)
    const operations = [remove(runKey(hostOf(authoritative), name)), put(runKey(hostOf(us), name), NOTHING)]
    return { vm: { ...begun, ...at(current.generation + 1n) }, operations, wantsNoLease: true }
  }
  checkAuthoritative(current, us)
  checkSameLeases(current, settings)
  const vm = { ...current, settings, ...at(current.generation) }
  const isSame = Buffer.from(Vm.encode(vm).finish()).equals(Vm.encode(current).finish())
  return isSame ? undefined : { vm }
}

/** Writers of an earlier epoch are fenced off. */
function ofEpoch(volumes: readonly VolumePlace[], epoch: bigint): VolumePlace[] {
  return volumes.map((volume) => ({ ...volume, epoch }))
}

function isFull({ settings }: Vm): boolean {
  return settings?.leaseMode === LeaseMode.LM_FULL_LEASES
}

/** Another host has the same disks. */
function checkSameVolumes({ namespace, name, volumes: before }: Vm, volumes: readonly VolumePlace[]): void {
  const textsOf = (all: readonly VolumePlace[]) => all.map(({ key, host, path }) => `${key}: ${host}:${path}`)
  const [there, wanted] = [textsOf(before).toSorted().join(', '), textsOf(volumes).toSorted().join(', ')]
  if (there === wanted) return
  throw precondition(
    `vm ${textOf({ namespace, name })}: volumes ${wanted || 'none'}, want those of before: ${there || 'none'}`,
  )
}

/** A lease that was granted is as long as it was. */
function checkSameLeases(
  { namespace, name, settings: before }: Vm,
  { leaseMode, leaseTtlMs }: VmSettings,
): void {
  if (before?.leaseMode === leaseMode && before.leaseTtlMs === leaseTtlMs) return
  throw precondition(
    `vm ${textOf({ namespace, name })}: settings.lease_mode ${leaseMode} and lease_ttl_ms ${leaseTtlMs}, want them as they were: ${before?.leaseMode} and ${before?.leaseTtlMs}`,
  )
}

function switched(
  current: Vm,
  {
    us,
    them,
    volumes,
  }: { readonly us: HypervisorID; readonly them: HypervisorID; readonly volumes: VolumePlace[] },
): VmChange {
  const { target, generation } = current
  const isHere = hostOf(us) === hostOf(them)
  // The source has stopped the VM before its target asks.
  const isAgreed = isSameHypervisor(target?.source, them) && target?.host === hostOf(us)
  const vm = {
    ...current,
    authoritative: us,
    generation: generation + 1n,
    target: undefined,
    volumes: ofEpoch(volumes.length === 0 ? current.volumes : volumes, generation + 1n),
  }
  const operations = isHere
    ? []
    : [remove(runKey(hostOf(them), current)), put(runKey(hostOf(us), current), NOTHING)]
  // The same holder may still run the VM with the grant of the run before, whose record stays until the next grant replaces it.
  if (!isFull(current) || isSamePod(us, them)) return { vm, operations }
  return isAgreed
    ? { vm, operations: [remove(leaseKey(current)), ...operations] }
    : { vm, operations, wantsNoLease: true }
}

function withoutSpecification({ settings }: Vm): VmSettings | undefined {
  return settings && { ...settings, specification: undefined }
}
