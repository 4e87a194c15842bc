import { describe, expect, it } from 'vitest'
import { commonOfSpans, type FinishedSpan } from '../../../src/agent/tracing/finished-span.ts'
import { portSink } from '../../../src/agent/tracing/port-sink.ts'
import { neverAborted } from '../../../src/base/abort.ts'
import { FakeOs } from '../../support/fakes/fake-os.ts'

const TRACE_ID = '4bf92f3577b34da6a3ce929d0e0e4736'
const contextOf = (spanId: string) => ({ traceId: TRACE_ID, spanId, traceFlags: 1 })

const COMMON: Omit<FinishedSpan, 'name' | 'kind' | 'spanContext' | 'status' | 'attributes'> = {
  ...commonOfSpans({ 'service.name': 'agent', 'service.version': '1.2.3' }),
  startTime: [1_700_000_000, 5],
  endTime: [1_700_000_001, 999_999_999],
  duration: [1, 999_999_994],
}
/** A step in a call, whose ids are larger than JavaScript's numbers. */
const STEP: FinishedSpan = {
  ...COMMON,
  name: 'storage',
  kind: 0,
  spanContext: () => contextOf('fffffffffffffffe'),
  parentSpanContext: contextOf('00f067aa0ba902b7'),
  status: { code: 2 },
  attributes: { detail: 'a "quoted" päth' },
}
/** A call that begins a trace. */
const CALL: FinishedSpan = {
  ...COMMON,
  name: 'grpc.AgentService/ExecProcess',
  kind: 1,
  spanContext: () => contextOf('0000000000000001'),
  status: { code: 0 },
  attributes: {},
}

/**
 * What the port gets: each span as serde's JSON of the reference's `SpanData`, behind its length in 8 bytes, big-endian
 * (behaviour spec, I.7).
 */
const RECORDED = [
  {
    length: '00000000000002e3',
    json: [
      '{"span_context":{"trace_id":100985939111033328018442752961257817910,"span_id":18446744073709551614,"trace_flags":1,"is_remote":false,"trace_state":null},',
      '"parent_span_id":67667974448284343,"span_kind":"Internal","name":"storage",',
      '"start_time":{"secs_since_epoch":1700000000,"nanos_since_epoch":5},',
      '"end_time":{"secs_since_epoch":1700000001,"nanos_since_epoch":999999999},',
      '"attributes":{"map":{"detail":{"String":"a \\"quoted\\" päth"}},"evict_list":["detail"],"max_len":128,"dropped_count":0},',
      '"message_events":{"queue":[],"max_len":128,"dropped_count":0},',
      '"links":{"queue":[],"max_len":128,"dropped_count":0},',
      '"status_code":"Error","status_message":"",',
      '"resource":{"attrs":{"service.name":{"String":"agent"},"service.version":{"String":"1.2.3"}}}}',
    ],
  },
  {
    length: '00000000000002a4',
    json: [
      '{"span_context":{"trace_id":100985939111033328018442752961257817910,"span_id":1,"trace_flags":1,"is_remote":false,"trace_state":null},',
      '"parent_span_id":0,"span_kind":"Server","name":"grpc.AgentService/ExecProcess",',
      '"start_time":{"secs_since_epoch":1700000000,"nanos_since_epoch":5},',
      '"end_time":{"secs_since_epoch":1700000001,"nanos_since_epoch":999999999},',
      '"attributes":{"map":{},"evict_list":[],"max_len":128,"dropped_count":0},',
      '"message_events":{"queue":[],"max_len":128,"dropped_count":0},',
      '"links":{"queue":[],"max_len":128,"dropped_count":0},',
      '"status_code":"Unset","status_message":"",',
      '"resource":{"attrs":{"service.name":{"String":"agent"},"service.version":{"String":"1.2.3"}}}}',
    ],
  },
]

describe('the port of spans', () => {
  it('gets each span as the reference sends it, byte by byte', async () => {
    const os = new FakeOs()
    const host = os.hostSockets.accept(10_240)
    const sink = portSink(os, { kind: 'vsock', port: 10_240 })
    await sink.send([STEP, CALL], neverAborted)
    const received = os.streams.tryRead(await host, 65_536)
    const recorded = RECORDED.map(({ length, json }) =>
      Buffer.concat([Buffer.from(length, 'hex'), Buffer.from(json.join(''))]),
    )
    expect(received?.toString('latin1')).toBe(Buffer.concat(recorded).toString('latin1'))
    sink.close()
  })
})
