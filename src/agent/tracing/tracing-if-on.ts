import type { Logger } from '../../base/log.ts'
import { hostPort } from '../../handlers/stdio/host-connections.ts'
import type { Os } from '../../os/os.ts'
import { startTimer } from '../../rpc/timer.ts'
import type { AgentConfig } from '../../settings/settings.ts'
import type { Tracing } from './tracer.ts'

/** Where Kata's forwarder of traces listens. */
const FORWARDER_PORT = 10_240

/** Loads the tracing module only if a setting names a receiver. */
export async function tracingIfOn(parts: {
  readonly config: Pick<AgentConfig, 'tracing' | 'otlpEndpoint' | 'stdioDial'>
  readonly os: Os
  readonly log: Logger
  readonly service: { readonly name: string; readonly version: string }
}): Promise<Tracing | undefined> {
  const { config, os, log, service } = parts
  const endpoint = config.otlpEndpoint === '' ? undefined : config.otlpEndpoint
  const forwarder = config.tracing ? hostPort(config.stdioDial, FORWARDER_PORT) : undefined
  if (endpoint === undefined && forwarder === undefined) return undefined
  const { startTracing } = await import('./start-tracing.ts')
  return startTracing({ os, log, startTimer, service, endpoint, forwarder })
}
