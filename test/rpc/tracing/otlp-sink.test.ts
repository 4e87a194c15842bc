import { describe, expect, it } from 'vitest'
import { neverAborted } from '../../../src/base/abort.ts'
import { otlpSink } from '../../../src/rpc/tracing/otlp-sink.ts'
import { CALL, SERVICE, STEP } from '../../fixtures/spans.ts'
import { startCollector } from '../../support/host/otlp-collector.ts'

/** The output of OpenTelemetry's own serializer for these spans (@opentelemetry/otlp-transformer 0.301.1). */
const RECORDED = [
  '{"resourceSpans":[{"resource":{"attributes":[',
  '{"key":"service.name","value":{"stringValue":"agent"}},{"key":"service.version","value":{"stringValue":"1.2.3"}}],',
  '"droppedAttributesCount":0},"scopeSpans":[{"scope":{"name":"agent"},"spans":[',
  '{"traceId":"4bf92f3577b34da6a3ce929d0e0e4736","spanId":"fffffffffffffffe","parentSpanId":"00f067aa0ba902b7",',
  '"name":"storage","kind":1,"startTimeUnixNano":"1700000000000000005","endTimeUnixNano":"1700000001999999999",',
  '"attributes":[{"key":"detail","value":{"stringValue":"a \\"quoted\\" päth"}}],"droppedAttributesCount":0,',
  '"events":[],"droppedEventsCount":0,"status":{"code":2},"links":[],"droppedLinksCount":0,"flags":257},',
  '{"traceId":"4bf92f3577b34da6a3ce929d0e0e4736","spanId":"0000000000000001",',
  '"name":"grpc.AgentService/ExecProcess","kind":2,"startTimeUnixNano":"1700000000000000005",',
  '"endTimeUnixNano":"1700000001999999999","attributes":[],"droppedAttributesCount":0,',
  '"events":[],"droppedEventsCount":0,"status":{"code":0},"links":[],"droppedLinksCount":0,"flags":257}]}]}]}',
]

describe('a collector', () => {
  it('gets spans as OpenTelemetry writes them, byte by byte', async () => {
    const collector = await startCollector()
    await otlpSink(collector.endpoint, SERVICE).send([STEP, CALL], neverAborted)
    expect(collector.bodies).toEqual([RECORDED.join('')])
    expect(collector.requests).toEqual(['POST /v1/traces application/json'])
    collector.stop()
  })
})
