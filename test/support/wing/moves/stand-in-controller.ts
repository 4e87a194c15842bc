import { AgentError } from '../../../../src/base/errors.ts'
import { Vm } from '../../../../src/gen/microvm/controller/v1/controller.ts'
import { EnsureMigrationTargetResponse, type HypervisorID } from '../../../../src/gen/vm.ts'
import type { MoveController } from '../../../../src/host/migration/move/move-host.ts'

/** A host, as a controller asks it. */
interface StandInHost {
  readonly endpoint: string
  /** EnsureInstance with `migration_target`. */
  readonly ensureTarget: (us: HypervisorID, source: string) => Promise<void>
}

/** A controller in memory that keeps who runs each VM, and every switchover. */
export class StandInController implements MoveController {
  readonly hosts = new Map<string, StandInHost>()
  readonly vms = new Map<string, Vm>()
  /** The hypervisors that have run VMs, in order: pod name and run id. */
  readonly chain: string[] = []
  /** Called before each call; throws for one that is to fail. */
  before: (call: keyof MoveController) => void = () => {}
  /** The same after it has been carried out, whose answer is lost then. */
  after: (call: keyof MoveController) => void = () => {}

  ensureVm: MoveController['ensureVm'] = async ({ us, settings }) =>
    this.#call('ensureVm', () => {
      const id = present(us)
      const known = this.vms.get(nameOf(id))
      if (known !== undefined && known.authoritative?.podName !== id.podName)
        throw new AgentError(
          'FAILED_PRECONDITION',
          `vm ${id.vmName}: ${known.authoritative?.podName} runs it`,
        )
      const { namespace, vmName: name } = id
      const vm = Vm.fromPartial({ namespace, name, authoritative: id, generation: known?.generation ?? 1n })
      const whole = { ...vm, settings: settings ?? vm.settings }
      this.vms.set(nameOf(id), whole)
      if (known === undefined) this.chain.push(textOf(id))
      return whole
    })

  ensureMigrationTarget: MoveController['ensureMigrationTarget'] = async ({ us, toHost }) => {
    this.before('ensureMigrationTarget')
    const id = present(us)
    const answer = this.#choose(id, toHost)
    const [own = ''] = id.podName.split('/')
    await this.hosts.get(answer.host)?.ensureTarget(id, this.hosts.get(own)?.endpoint ?? '')
    return answer
  }

  forecastTarget: MoveController['forecastTarget'] = async ({ toHost, vm }) =>
    this.#call('forecastTarget', () => this.#choose(present(vm?.us), toHost))

  switchover: MoveController['switchover'] = async ({ us, them, volumes }) =>
    this.#call('switchover', () => {
      const [id, before] = [present(us), present(them)]
      const vm = this.vms.get(nameOf(id))
      const { authoritative } = vm ?? {}
      if (
        vm === undefined ||
        authoritative?.podName !== before.podName ||
        authoritative.runId !== before.runId
      )
        throw new AgentError('FAILED_PRECONDITION', `vm ${id.vmName}: ${textOf(before)} does not run it`)
      const places = volumes.length === 0 ? vm.volumes : volumes
      this.vms.set(nameOf(id), { ...vm, authoritative: id, generation: vm.generation + 1n, volumes: places })
      this.chain.push(textOf(id))
    })

  getVm: MoveController['getVm'] = async ({ name, namespace }) =>
    this.#call('getVm', () => {
      const vm = this.vms.get(`${namespace}/${name}`)
      if (vm !== undefined) return vm
      throw new AgentError('NOT_FOUND', `vm ${name}: not found`)
    })

  listHosts: MoveController['listHosts'] = async () => []

  #choose({ podName }: HypervisorID, toHost: string): EnsureMigrationTargetResponse {
    const [own] = podName.split('/')
    const found = [...this.hosts].find(([host]) => host !== own && (toHost === '' || host === toHost))
    if (found === undefined)
      return EnsureMigrationTargetResponse.fromPartial({ action: 2, reason: `no host ${toHost} fits` })
    const [host, { endpoint }] = found
    return EnsureMigrationTargetResponse.fromPartial({ action: 1, targetEndpoint: endpoint, host })
  }

  #call<Answer>(name: keyof MoveController, work: () => Answer): Answer {
    this.before(name)
    const answer = work()
    this.after(name)
    return answer
  }
}

function present(id: HypervisorID | undefined): HypervisorID {
  if (id !== undefined) return id
  throw new AgentError('INVALID_ARGUMENT', 'no hypervisor')
}

function nameOf({ namespace, vmName }: HypervisorID): string {
  return `${namespace}/${vmName}`
}

function textOf({ podName, runId }: HypervisorID): string {
  return `${podName}#${runId}`
}
