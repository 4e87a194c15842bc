import { AgentError } from '../../base/errors.ts'
import { AgentServiceDefinition } from '../../gen/agent.ts'
import type { Spec } from '../../gen/oci.ts'
import { clientFor, type ServiceClient } from '../../rpc/client.ts'
import type { TtrpcClient } from '../../rpc/ttrpc/client.ts'

/** The timeout that shims use for these calls. */
const CREATE_TIMEOUT_MS = 60_000

export type Agent = ServiceClient<typeof AgentServiceDefinition>

export function agentOf(connection: Pick<TtrpcClient, 'call'>): Agent {
  return clientFor(AgentServiceDefinition, connection)
}

export interface NewContainer {
  readonly id: string
  readonly hostname: string
  readonly spec: Spec
  readonly rootDisk: { readonly source: string; readonly mountPoint: string }
}

/** The guest path where the agent expects a container's root file system. */
export function rootPathOf(containerId: string): string {
  return `/run/kata-containers/${containerId}/rootfs`
}

/** Creates the sandbox, and resolves once the guest has booted. */
export async function createSandbox(
  agent: Agent,
  sandbox: { readonly id: string; readonly hostname: string },
  signal: AbortSignal,
): Promise<void> {
  const request = { sandboxId: sandbox.id, hostname: sandbox.hostname }
  await answered('CreateSandbox', agent.createSandbox(request, { signal, timeoutMs: CREATE_TIMEOUT_MS }))
}

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

/** Adds the call and the time limit to the error of a creation that takes too long. */
async function answered<T>(call: string, answer: Promise<T>): Promise<T> {
  try {
    return await answer
  } catch (error) {
    if (!(error instanceof AgentError) || error.code !== 'DEADLINE_EXCEEDED') throw error
    const text = `${call}: no answer within ${CREATE_TIMEOUT_MS / 1000} s`
    throw new AgentError('DEADLINE_EXCEEDED', text, { cause: error })
  }
}
