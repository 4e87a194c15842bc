import { normalized } from '../../base/suggest.mjs'
import { AgentServiceDefinition } from '../../gen/agent.ts'
import { HealthDefinition } from '../../gen/health.ts'
import { IntrospectionDefinition } from '../../gen/microvm/agent/v1/introspection.ts'
import { LifecycleDefinition } from '../../gen/microvm/agent/v1/lifecycle.ts'

/** In order of preference, for a method name that several services have. */
const SERVICES = [
  AgentServiceDefinition,
  HealthDefinition,
  IntrospectionDefinition,
  LifecycleDefinition,
] as const

export interface MethodName {
  readonly service: string
  readonly method: string
}

/** All methods with a single response. */
export const METHODS: readonly MethodName[] = SERVICES.flatMap(({ fullName, methods }) =>
  Object.values(methods).flatMap(({ name, responseStream }) =>
    responseStream ? [] : [{ service: fullName, method: name }],
  ),
)

/** Finds a method by its name in any case, with or without its service. */
export function methodNamed(text: string): MethodName | undefined {
  const wanted = normalized(text.replace(/^.*[/]/, ''))
  const service = text.includes('/') ? text.slice(0, text.lastIndexOf('/')) : undefined
  return METHODS.find(
    (each) => normalized(each.method) === wanted && (service === undefined || each.service === service),
  )
}
