import { AgentServiceDefinition } from '../../gen/agent.ts'
import { HealthDefinition } from '../../gen/health.ts'
import { IntrospectionDefinition } from '../../gen/microvm/agent/v1/introspection.ts'
import { LifecycleDefinition } from '../../gen/microvm/agent/v1/lifecycle.ts'
import type { JsonObject } from './recording.ts'

export interface MessageCodecs {
  readonly requestType: { decode(bytes: Uint8Array): object }
  readonly responseType: { decode(bytes: Uint8Array): object }
}

const CODECS: ReadonlyMap<string, MessageCodecs> = new Map(
  [AgentServiceDefinition, HealthDefinition, IntrospectionDefinition, LifecycleDefinition].flatMap(
    ({ fullName, methods }) =>
      Object.values(methods).map((method): [string, MessageCodecs] => [`${fullName}/${method.name}`, method]),
  ),
)

/** undefined for an unknown method. */
export function codecsOf(service: string, method: string): MessageCodecs | undefined {
  return CODECS.get(`${service}/${method}`)
}

/** A message as in recordings: 64-bit numbers are decimal texts, bytes are base64. */
export function plainMessage(message: object): JsonObject {
  return JSON.parse(JSON.stringify(message, plainValue))
}

function plainValue(this: unknown, key: string, value: unknown): unknown {
  // JSON.stringify has already called Buffer.toJSON.
  const own: unknown = typeof this === 'object' && this !== null ? Reflect.get(this, key) : value
  if (typeof value === 'bigint') return value.toString()
  return own instanceof Uint8Array ? { base64: Buffer.from(own).toString('base64') } : value
}
