import { AgentError, messageOf, type StatusCodeName } from '../../../base/errors.ts'
import type { Logger } from '../../../base/log.ts'
import {
  EnsureVmRequest,
  type ForecastTargetRequest,
  type Host,
  type Target,
  Vm,
} from '../../../gen/microvm/controller/v1/controller.ts'
import {
  EnsureMigrationTargetResponse_Action as Action,
  type EnsureMigrationTargetRequest,
  EnsureMigrationTargetResponse,
  type HypervisorID,
} from '../../../gen/vm.ts'
import { HOST_ID } from '../../tls/credentials.ts'
import type { Hosts } from '../hosts.ts'
import { checkedHypervisor, hostOf, invalid, isSameHypervisor, quoted } from '../hypervisor-id.ts'
import type { VmRecords } from '../store/vm-records.ts'
import { checkAuthoritative, checkedVm, nameOf, notFound, textOf } from '../vms.ts'
import { chooseHost } from './choose-host.ts'
import type { TargetHosts } from './target-host.ts'

/** How many hosts are asked in one call. */
const MOST_HOSTS = 3

/** What a host says to a machine that it has no room for, or cannot run. */
const REFUSALS: readonly StatusCodeName[] = [
  'FAILED_PRECONDITION',
  'RESOURCE_EXHAUSTED',
  'INVALID_ARGUMENT',
  'ALREADY_EXISTS',
  'UNIMPLEMENTED',
]

/** Finds a host that a VM can move to, and has it await the VM. */
export class MigrationTargets {
  readonly #records: VmRecords
  readonly #hosts: Hosts
  readonly #targetHosts: TargetHosts
  readonly #log: Logger

  constructor(parts: {
    readonly records: VmRecords
    readonly hosts: Hosts
    readonly targetHosts: TargetHosts
    readonly log: Logger
  }) {
    this.#records = parts.records
    this.#hosts = parts.hosts
    this.#targetHosts = parts.targetHosts
    this.#log = parts.log
  }

  /**
   * The target of the VM of `us`: the one that it has already, or a new one. A VM that cannot move is told so with ACTION_SOFT_SHUTDOWN
   * and the reason. Throws FAILED_PRECONDITION when `us` does not run the VM, and ABORTED when a host that fits has not answered.
   */
  async ensure(
    request: EnsureMigrationTargetRequest,
    signal: AbortSignal,
  ): Promise<EnsureMigrationTargetResponse> {
    const us = checkedHypervisor('us', request.us)
    const name = nameOf(us)
    const stored = await this.#records.read(name)
    if (stored === undefined || stored.vm.removed) throw notFound(name)
    const { vm } = stored
    checkAuthoritative(vm, us)
    const choice = await this.#choose(vm, us, request.toHost)
    if ('reason' in choice) return softShutdown(choice.reason)
    return await this.#tryEach(us, { ...choice, signal })
  }

  /** The same answer, and nothing is changed. The VM may be unknown. */
  async forecast({
    toHost,
    vm: given = EnsureVmRequest.create(),
  }: ForecastTargetRequest): Promise<EnsureMigrationTargetResponse> {
    const { settings, us, volumes } = checkedVm(given)
    const name = nameOf(us)
    const known = (await this.#records.read(name))?.vm
    const { authoritative } = known ?? {}
    // A later run of the same host replaces an earlier one.
    if (known?.removed === false && (authoritative === undefined || hostOf(authoritative) !== hostOf(us)))
      checkAuthoritative(known, us)
    const vm = Vm.fromPartial({ ...name, settings, volumes, authoritative: us, target: known?.target })
    const choice = await this.#choose(vm, us, toHost)
    if ('reason' in choice) return softShutdown(choice.reason)
    const [first] = choice.hosts
    if (first === undefined) throw new Error('forecast: no host')
    return liveMigrate(first)
  }

  async #choose(
    vm: Vm,
    us: HypervisorID,
    toHost: string,
  ): Promise<Omit<Trying, 'signal'> | { readonly reason: string }> {
    if (toHost !== '' && !HOST_ID.test(toHost))
      throw invalid(`to_host: ${quoted(toHost)}, want the id of a host`)
    const all = await this.#hosts.list()
    const choice = chooseHost(vm, all, toHost)
    if ('reason' in choice) return choice
    const source = all.find(({ id }) => id === hostOf(us))
    if (source === undefined)
      throw new AgentError(
        'FAILED_PRECONDITION',
        `host ${hostOf(us)}: not registered, want RegisterHost before`,
      )
    const hosts = reusedFirst(vm, us, choice.hosts).slice(0, MOST_HOSTS)
    return { hosts, all, source: source.endpoint }
  }

  async #tryEach(
    us: HypervisorID,
    { all, hosts, signal, source }: Trying,
  ): Promise<EnsureMigrationTargetResponse> {
    const reasons: string[] = []
    let isRefused = true
    for (const host of hosts) {
      const before = await this.#record(us, { host: host.id, endpoint: host.endpoint, source: us }, signal)
      if (before !== undefined && before.host !== host.id) await this.#abandon(us, all, before.host, signal)
      try {
        await this.#targetHosts.ensure(host, nameOf(us), source, signal)
        this.#log.info('target', { vm: textOf(nameOf(us)), kind: 'ready', host: host.id })
        return liveMigrate(host)
      } catch (error) {
        signal.throwIfAborted()
        isRefused &&= error instanceof AgentError && REFUSALS.includes(error.code)
        reasons.push(`${host.id}: ${messageOf(error)}`)
        this.#log.warn('target', {
          vm: textOf(nameOf(us)),
          kind: 'failed',
          host: host.id,
          error: messageOf(error),
        })
      }
    }
    await this.#record(us, undefined, signal)
    if (!isRefused) throw new AgentError('ABORTED', `no target: ${reasons.join('; ')}; want the call again`)
    return softShutdown(`no host that fits: ${reasons.join('; ')}`)
  }

  /** Writes the target down before it is made. Returns the one before. */
  async #record(
    us: HypervisorID,
    target: Target | undefined,
    signal: AbortSignal,
  ): Promise<Target | undefined> {
    let before: Target | undefined
    await this.#records.change(
      nameOf(us),
      (current) => {
        if (current === undefined || current.removed) throw notFound(nameOf(us))
        checkAuthoritative(current, us)
        before = current.target
        const isSame = before?.host === target?.host && isSameHypervisor(before?.source, target?.source)
        return isSame && before?.endpoint === target?.endpoint ? undefined : { vm: { ...current, target } }
      },
      signal,
    )
    return before
  }

  /** If the host does not answer now, it forgets the target by itself after a while. */
  async #abandon(us: HypervisorID, hosts: readonly Host[], id: string, signal: AbortSignal): Promise<void> {
    const host = hosts.find((each) => each.id === id)
    if (host === undefined) return
    try {
      await this.#targetHosts.abandon(host, nameOf(us), signal)
    } catch (error) {
      this.#log.warn('target', {
        vm: textOf(nameOf(us)),
        kind: 'not removed',
        host: id,
        error: messageOf(error),
      })
    }
  }
}

interface Trying {
  readonly hosts: readonly Host[]
  readonly all: readonly Host[]
  /** Endpoint of the host that the VM is on. */
  readonly source: string
  readonly signal: AbortSignal
}

/** The present target of the same source comes first. */
function reusedFirst({ target }: Vm, us: HypervisorID, hosts: readonly Host[]): readonly Host[] {
  const present = hosts.filter(({ id }) => id === target?.host && isSameHypervisor(target.source, us))
  return [...present, ...hosts.filter((host) => !present.includes(host))]
}

function liveMigrate({ endpoint, id }: Host): EnsureMigrationTargetResponse {
  return EnsureMigrationTargetResponse.fromPartial({
    action: Action.ACTION_LIVE_MIGRATE,
    targetEndpoint: endpoint,
    host: id,
  })
}

function softShutdown(reason: string): EnsureMigrationTargetResponse {
  return EnsureMigrationTargetResponse.fromPartial({ action: Action.ACTION_SOFT_SHUTDOWN, reason })
}
