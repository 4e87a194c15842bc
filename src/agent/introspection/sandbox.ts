import type {
  GetSandboxResponse,
  ListContainersRequest,
  ListContainersResponse,
  ListMountsResponse,
} from '../../gen/microvm/agent/v1/introspection.ts'
import { bundleOf } from '../../handlers/container/bundle.ts'
import type { Container } from '../../handlers/container/container.ts'
import type { SandboxContext } from '../../handlers/sandbox/context.ts'
import { GUEST_HOOK_TYPES } from '../../oci/hooks.ts'
import type { IntrospectionContext } from './context.ts'

export function getSandbox({
  sandbox: { config, sandboxState, containers, events, os },
  quiesce: { frozen },
  restarts,
  startedMs,
}: IntrospectionContext): GetSandboxResponse {
  const { name, sandbox } = sandboxState.view
  const { ipc, uts } = sandbox?.namespaces ?? {}
  const hooks = GUEST_HOOK_TYPES.flatMap((type) =>
    (sandbox?.guestHooks[type] ?? []).map(({ Path }) => `${type} ${Path}`),
  )
  return {
    state: name,
    id: sandbox?.id ?? '',
    namespaces: [ipc, uts].filter((path) => path !== undefined),
    guestHooks: hooks,
    containers: containers.list().length,
    agentRestarts: restarts,
    agentUptimeMs: BigInt(Math.round(os.clock.monotonicMs() - startedMs)),
    guestUptimeMs: os.clock.boottimeNs() / 1_000_000n,
    guestTimeMs: events.unixMsOf(os.clock.boottimeNs()),
    frozen: frozen && {
      ...frozen,
      containers: [...frozen.containers],
      fileSystems: [...frozen.fileSystems],
      thawInMs: BigInt(frozen.thawInMs),
    },
    streamGraceMs: BigInt(config.streamGraceMs),
  }
}

/** An empty id names all containers. Throws NOT_FOUND for an unknown one. */
export function containersOf(
  { containers }: Pick<SandboxContext, 'containers'>,
  containerId: string,
): readonly Container[] {
  if (containerId === '') return containers.list()
  const container = containers.tryGet(containerId)
  if (container === undefined) throw containers.unknown(containerId, 'NOT_FOUND')
  return [container]
}

export function listContainers(
  { sandbox, quiesce }: Pick<IntrospectionContext, 'sandbox' | 'quiesce'>,
  { containerId }: ListContainersRequest,
): ListContainersResponse {
  const frozen = quiesce.frozen?.containers ?? []
  const containers = containersOf(sandbox, containerId).map(({ id, state, cgroupPath, record }) => {
    const { init, processes } = 'parts' in state ? state.parts : {}
    return {
      containerId: id,
      state: state.name,
      initPid: init?.pid ?? 0,
      cgroupPath,
      processes: processes?.tracked().length ?? 0,
      storages: [...record.fields.storages],
      exitStatus: init?.status,
      oomKills: record.oomKills,
      frozen: frozen.includes(id),
      bundle: bundleOf(sandbox.config.sharedRoot, record.key).folder,
      vfioDevices: [...record.fields.vfioDevices],
    }
  })
  return { containers }
}

export async function listMounts({
  sandbox,
}: Pick<IntrospectionContext, 'sandbox'>): Promise<ListMountsResponse> {
  const { os, storage, containers, sandboxState } = sandbox
  const mounts = await os.mounts.list()
  const held = [
    { holder: 'sandbox', mountPoints: sandboxState.view.sandbox?.record.fields.storages ?? [] },
    ...containers.list().map(({ id, record }) => ({ holder: id, mountPoints: record.fields.storages })),
  ]
  const holdersOf = (wanted: string) =>
    held.flatMap(({ holder, mountPoints }) =>
      mountPoints.filter((mountPoint) => mountPoint === wanted).map(() => holder),
    )
  return {
    mounts: mounts.map(({ mountPoint, type, source, options }) => {
      return { mountPoint, type, source, readOnly: options.split(',').includes('ro') }
    }),
    storages: storage.list().map(({ fstype, device = '', ...known }) => {
      return { ...known, type: fstype, device, holders: holdersOf(known.mountPoint) }
    }),
  }
}
