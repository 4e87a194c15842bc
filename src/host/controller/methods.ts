import { ControllerServiceDefinition } from '../../gen/microvm/controller/v1/controller.ts'
import {
  EnsureMigrationTargetResponse_Action,
  type HypervisorID,
  VMControllerDefinition,
} from '../../gen/vm.ts'
import { HOST_TTL_MS, type Hosts } from './hosts.ts'
import { checkedHypervisor, hostOf, invalid } from './hypervisor-id.ts'
import type { Leases } from './leases.ts'
import { type ControllerCall, checkHost, type DeclaredMethod, declaredMethods } from './serve.ts'
import type { MigrationTargets } from './target/ensure-target.ts'
import type { VmWatch } from './vm-watch.ts'
import type { Vms } from './vms.ts'

/** Metadata after the answer of a VM that cannot move. */
const REASON = 'reason'

/** All that a controller serves. */
export function controllerMethods({
  hosts,
  leases,
  targets,
  vms,
  watch,
}: {
  readonly hosts: Hosts
  readonly leases: Leases
  readonly targets: MigrationTargets
  readonly vms: Vms
  readonly watch: VmWatch
}): readonly DeclaredMethod[] {
  return [
    ...declaredMethods(VMControllerDefinition, {
      ensureMigrationTarget: async (request, call) => {
        checkIsUs(call, request.us)
        const answer = await targets.ensure(request, call.signal)
        if (answer.action === EnsureMigrationTargetResponse_Action.ACTION_SOFT_SHUTDOWN)
          call.setTrailer(REASON, answer.reason)
        return answer
      },
      migrationSwitchover: async (request, call) => {
        checkIsUs(call, request.us)
        await vms.switchover(request, call.signal)
        return {}
      },
      runLease: ({ us }, call) => {
        checkIsUs(call, us)
        return watch.runLease(us, call)
      },
    }),
    ...declaredMethods(ControllerServiceDefinition, {
      registerHost: async ({ host }, call) => {
        if (host === undefined) throw invalid('host: missing, want the host')
        checkHost(call, host.id, 'host.id')
        await hosts.register(host)
        return { ttlMs: BigInt(HOST_TTL_MS) }
      },
      listHosts: async () => ({ hosts: [...(await hosts.list())] }),
      ensureVm: async (request, call) => {
        checkIsUs(call, request.us)
        return await vms.ensure(request, call.signal)
      },
      forecastTarget: async (request, call) => {
        checkIsUs(call, request.vm?.us)
        return await targets.forecast(request)
      },
      getVm: async (request) => await vms.get(request),
      listVms: async (request) => await vms.list(request),
      removeVm: async ({ us }, call) => {
        checkIsUs(call, us)
        await vms.remove(us, call.signal)
        return {}
      },
      renewLease: async (request, call) => {
        checkIsUs(call, request.us)
        return await leases.renew(request)
      },
    }),
  ]
}

/** Throws PERMISSION_DENIED unless the caller is the host that `us` is on. */
function checkIsUs(call: Pick<ControllerCall, 'peer'>, us: HypervisorID | undefined): void {
  checkHost(call, hostOf(checkedHypervisor('us', us)), 'us.pod_name')
}
