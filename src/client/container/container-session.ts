import { AgentError } from '../../base/errors.ts'
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
  const request = { sandboxId: sandbox.id, hostname: sandbox.hostname }
  await answered('CreateSandbox', agent.createSandbox(request, { signal, timeoutMs: CREATE_TIMEOUT_MS }))
}

/** Creates the container with its root disk mounted. Its process waits for `startContainer`. */
export async function createContainer(
  agent: Agent,
  container: NewContainer,
  signal: AbortSignal,
): Promise<void> {
  const { id, spec, rootDisk } = container
  const { source, mountPoint } = rootDisk
  const storages = [{ driver: 'blk', source, fstype: 'ext4', options: [], mountPoint }]
  const request = { containerId: id, OCI: spec, storages }
  await answered('CreateContainer', agent.createContainer(request, { signal, timeoutMs: CREATE_TIMEOUT_MS }))
}

/** Waits for the answer of a call with the time limit of a creation, and names both when it does not come in time. */
async function answered<T>(call: string, answer: Promise<T>): Promise<T> {
  try {
    return await answer
  } catch (error) {
    if (!(error instanceof AgentError) || error.code !== 'DEADLINE_EXCEEDED') throw error
    const text = `${call}: no answer within ${CREATE_TIMEOUT_MS / 1000} s`
    throw new AgentError('DEADLINE_EXCEEDED', text, { cause: error })
  }
}
