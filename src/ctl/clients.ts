import { AgentError } from '../base/errors.ts'
import type { AgentServiceDefinition } from '../gen/agent.ts'
import type { IntrospectionDefinition } from '../gen/microvm/agent/v1/introspection.ts'
import type { LifecycleDefinition } from '../gen/microvm/agent/v1/lifecycle.ts'
import { clientFor, type ServiceClient, type ServiceDefinition } from '../rpc/client.ts'
import type { CallOptions } from '../rpc/ttrpc/client.ts'
import { CommandFailure, type Context, EXIT } from './command.ts'

/** The calls of AgentService, with the time limit of the command line. A failure names its call. */
export async function agentCalls(context: Context): Promise<ServiceClient<typeof AgentServiceDefinition>> {
  // These messages are large, and `ps` needs none of them.
  const { AgentServiceDefinition: definition } = await import('../gen/agent.ts')
  return await callsOf(context, definition)
}

export type Introspection = ServiceClient<typeof IntrospectionDefinition>

export async function introspectionCalls(context: Context): Promise<Introspection> {
  const { IntrospectionDefinition: definition } = await import('../gen/microvm/agent/v1/introspection.ts')
  return await callsOf(context, definition)
}

export async function lifecycleCalls(context: Context): Promise<ServiceClient<typeof LifecycleDefinition>> {
  const { LifecycleDefinition: definition } = await import('../gen/microvm/agent/v1/lifecycle.ts')
  return await callsOf(context, definition)
}

async function callsOf<Definition extends ServiceDefinition>(
  context: Context,
  definition: Definition,
): Promise<ServiceClient<Definition>> {
  const session = await context.session()
  const { signal, timeoutMs } = context
  const call = async (service: string, method: string, payload: Uint8Array, options: CallOptions = {}) => {
    try {
      return await session.call(service, method, payload, { signal, timeoutMs, ...options })
    } catch (error) {
      throw callFailure(method, error)
    }
  }
  return clientFor(definition, { call })
}

/** Turns the error of a call into the failure that the tool reports; returns any other error as it is. */
export function callFailure(method: string, error: unknown): unknown {
  if (!(error instanceof AgentError)) return error
  if (/^(ttrpc|grpc): closed/.test(error.message)) {
    const text = `${method}: the agent closed the connection before its answer; its log tells why`
    return new CommandFailure(EXIT.cannotRun, text, { cause: error })
  }
  return new CommandFailure(EXIT.failed, `${method}: ${error.code}: ${error.message}`, { cause: error })
}
