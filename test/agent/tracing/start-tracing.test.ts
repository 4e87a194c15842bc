import { describe, expect, it } from 'vitest'
import { defaultConfig } from '../../../src/agent/config/load-config.ts'
import { startTracing } from '../../../src/agent/tracing/start-tracing.ts'
import { tracingIfOn } from '../../../src/agent/tracing/tracing-if-on.ts'
import { neverAborted } from '../../../src/base/abort.ts'
import type { IncomingCall } from '../../../src/rpc/method.ts'
import { FakeOs } from '../../support/fakes/fake-os.ts'
import { recordingLog } from '../../support/fakes/recording-log.ts'
import { startCollector } from '../../support/host/otlp-collector.ts'
import { settle } from '../../support/pending.ts'

const PORT = 10_240
const TRACE = '4bf92f3577b34da6a3ce929d0e0e4736'
const PARENT = `00-${TRACE}-00f067aa0ba902b7-01`
const SERVICE = { name: 'agent', version: '1.2.3' }

const incoming: IncomingCall = {
  ...{ timeoutMs: undefined, hangup: neverAborted, peer: 'vsock 2:9', framing: 'grpc' },
  ...{ number: undefined, ageMs: 0, traceparent: PARENT },
}

function tracingTo(endpoint: string | undefined, port: number | undefined) {
  const os = new FakeOs()
  const { lines, log } = recordingLog()
  const tracing = startTracing({
    ...{ os, log, service: SERVICE, endpoint },
    startTimer: (ms, expired) => os.clock.startTimer(ms, expired),
    forwarder: port === undefined ? undefined : { kind: 'vsock', port },
  })
  return { os, lines, ...tracing }
}

describe('the traces of calls', () => {
  it('go to the forwarder as frames, with the times of the call and of its step', async () => {
    const { os, tracer, stop } = tracingTo(undefined, PORT)
    const host = os.hostSockets.accept(PORT)
    const call = tracer.begin('a.B/C', incoming)
    os.clock.advance(5)
    const endStep = call?.step('device', 'x'.repeat(1000))
    os.clock.advance(30)
    endStep?.(new Error('no device'))
    call?.end({ containerId: 'c1', execId: undefined }, 'INTERNAL')
    await stop()

    const frames = os.streams.tryRead(await host, 65_536) ?? Buffer.alloc(0)
    const length = Number(frames.readBigUInt64BE())
    const step = JSON.parse(frames.subarray(8, 8 + length).toString())
    const span = JSON.parse(frames.subarray(8 + length + 8).toString())
    expect(frames.readBigUInt64BE(8 + length)).toBe(BigInt(frames.length - length - 16))
    expect(span).toMatchObject({
      ...{ name: 'a.B/C', span_kind: 'Server', status_code: 'Error' },
      attributes: {
        map: {
          'rpc.system': { String: 'grpc' },
          'rpc.status': { String: 'INTERNAL' },
          containerId: { String: 'c1' },
        },
      },
      resource: { attrs: { 'service.name': { String: 'agent' }, 'service.version': { String: '1.2.3' } } },
    })
    expect(step).toMatchObject({ name: 'device', span_kind: 'Internal', status_code: 'Error' })
    expect(step.attributes.map.detail.String).toHaveLength(256)
    expect(msOf(span.start_time)).toBeCloseTo(msOf(step.start_time) - 5, 2)
    expect(msOf(step.end_time)).toBeCloseTo(msOf(step.start_time) + 30, 2)
  })

  it('go to a collector, even when another receiver accepts none', async () => {
    const collector = await startCollector()
    const { os, tracer, lines, dropped, stop } = tracingTo(collector.endpoint, PORT)
    os.hostSockets.ignore(PORT)
    tracer.begin('a.B/C', { ...incoming, traceparent: undefined })?.end({})
    os.clock.advance(200)
    const [span] = await collector.until(({ name }) => name === 'a.B/C')
    expect(span?.parentSpanId).toBeUndefined()
    expect(dropped()).toBe(0)
    const stopped = stop()
    await settle()
    os.clock.advance(1000)
    await stopped
    expect(dropped()).toBe(1)
    const told = lines.map(({ message, fields }) => `${message}: ${fields.to}`)
    const to = `port ${PORT} of the host`
    expect(told.slice(1)).toEqual([`trace spans not sent: ${to}`, `trace spans dropped: ${to}`])
    collector.stop()
  })

  it('are not made for a caller that does not want them', () => {
    const { tracer } = tracingTo(undefined, PORT)
    expect(tracer.begin('a.B/C', { ...incoming, traceparent: PARENT.replace(/01$/, '00') })).toBeUndefined()
  })

  it('are off without a setting', async () => {
    const { log } = recordingLog()
    const parts = { os: new FakeOs(), log, service: SERVICE }
    expect(await tracingIfOn({ ...parts, config: defaultConfig() })).toBeUndefined()
    const on = await tracingIfOn({ ...parts, config: { ...defaultConfig(), tracing: true } })
    expect(on?.dropped()).toBe(0)
  })
})

function msOf(time: { readonly secs_since_epoch: number; readonly nanos_since_epoch: number }): number {
  return time.secs_since_epoch * 1000 + time.nanos_since_epoch / 1e6
}
