import { normalized } from '../../base/suggest.mjs'
import { AgentServiceDefinition } from '../../gen/agent.ts'
import { HealthDefinition } from '../../gen/health.ts'
import { IntrospectionDefinition } from '../../gen/microvm/agent/v1/introspection.ts'

/** The services that the agent serves on ttRPC, the first first where a method has the same name in several. */
const SERVICES = [AgentServiceDefinition, HealthDefinition, IntrospectionDefinition] as const

/** A method of the agent. */
export interface MethodName {
  /** Full name, such as `grpc.AgentService`. */
  readonly service: string
  readonly method: string
}

/** All methods with one answer, by the names of the proto. */
export const METHODS: readonly MethodName[] = SERVICES.flatMap(({ fullName, methods }) =>
  Object.values(methods).flatMap(({ name, responseStream }) =>
    responseStream ? [] : [{ service: fullName, method: name }],
  ),
)

/** The method of this name, with or without its service, in any case; undefined if there is none. */
export function methodNamed(text: string): MethodName | undefined {
  const wanted = normalized(text.replace(/^.*[/]/, ''))
  const service = text.includes('/') ? text.slice(0, text.lastIndexOf('/')) : undefined
  return METHODS.find(
    (each) => normalized(each.method) === wanted && (service === undefined || each.service === service),
  )
}
