import { AgentServiceDefinition } from '../../gen/agent.ts'
import type { Spec } from '../../gen/oci.ts'
import { clientFor, type ServiceClient } from '../../rpc/client.ts'
import type { TtrpcClient } from '../../rpc/ttrpc/client.ts'

/** The timeout that shims give these calls. */
const CREATE_TIMEOUT_MS = 60_000

/** The calls of the agent's API. */
export type Agent = ServiceClient<typeof AgentServiceDefinition>

/** A client of the agent's API on a connection. */
export function agentOf(connection: Pick<TtrpcClient, 'call'>): Agent {
  return clientFor(AgentServiceDefinition, connection)
}

/** A container to create in a new sandbox, on a disk that the guest already has. */
export interface NewContainer {
  readonly id: string
  readonly hostname: string
  readonly spec: Spec
  readonly rootDisk: { readonly source: string; readonly mountPoint: string }
}

/** The path in the guest where the agent expects a container's root filesystem. */
export function rootPathOf(containerId: string): string {
  return `/run/kata-containers/${containerId}/rootfs`
}

/** Creates the sandbox. The agent answers once the guest has booted. */
export async function createSandbox(
  agent: Agent,
  sandbox: { readonly id: string; readonly hostname: string },
  signal: AbortSignal,
): Promise<void> {
  await agent.createSandbox(
    { sandboxId: sandbox.id, hostname: sandbox.hostname },
    { signal, timeoutMs: CREATE_TIMEOUT_MS },
  )
}

/** Creates the container with its root disk mounted. Its process waits for `startContainer`. */
export async function createContainer(
  agent: Agent,
  container: NewContainer,
  signal: AbortSignal,
): Promise<void> {
  const { id, spec, rootDisk } = container
  await agent.createContainer(
    {
      containerId: id,
      OCI: spec,
      storages: [
        {
          driver: 'blk',
          source: rootDisk.source,
          fstype: 'ext4',
          options: [],
          mountPoint: rootDisk.mountPoint,
        },
      ],
    },
    { signal, timeoutMs: CREATE_TIMEOUT_MS },
  )
}
