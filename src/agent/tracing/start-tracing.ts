import type { Logger } from '../../base/log.ts'
import type { Os } from '../../os/os.ts'
import type { HostAddress } from '../../os/sockets/host-sockets.ts'
import type { StartTimer } from '../../rpc/timer.ts'
import type { Service } from '../../rpc/tracing/finished-span.ts'
import { otlpSink } from '../../rpc/tracing/otlp-sink.ts'
import { SpanQueue } from '../../rpc/tracing/span-queue.ts'
import { callTracer } from './call-tracer.ts'
import { portSink } from './port-sink.ts'
import type { Tracing } from './tracer.ts'

export function startTracing(options: {
  readonly os: Pick<Os, 'hostSockets' | 'streams' | 'clock'>
  readonly log: Logger
  readonly startTimer: StartTimer
  readonly service: Service
  /** A collector's URL. */
  readonly endpoint: string | undefined
  /** The port of Kata's forwarder. */
  readonly forwarder: HostAddress | undefined
}): Tracing {
  const { os, log, startTimer, service, endpoint, forwarder } = options
  const sinks = [
    ...(endpoint === undefined ? [] : [otlpSink(endpoint, service)]),
    ...(forwarder === undefined ? [] : [portSink(os, forwarder, service)]),
  ]
  const queues = sinks.map((sink) => new SpanQueue(sink, { log, startTimer }))
  log.info('tracing', { to: sinks.map(({ name }) => name).join(', ') })
  return {
    tracer: callTracer({
      log,
      nowMs: () => os.clock.monotonicMs(),
      unixMs: Date.now,
      add: (span) => {
        for (const queue of queues) queue.add(span)
      },
    }),
    dropped: () => queues.reduce((sum, { dropped }) => sum + dropped, 0),
    stop: async () => {
      await Promise.all(queues.map((queue) => queue.stop()))
    },
  }
}
