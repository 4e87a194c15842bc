import { describe, expect, it } from 'vitest'
import { portSink } from '../../../src/agent/tracing/port-sink.ts'
import { neverAborted } from '../../../src/base/abort.ts'
import { CALL, SERVICE, STEP } from '../../fixtures/spans.ts'
import { FakeOs } from '../../support/fakes/fake-os.ts'

/**
 * The bytes at the port: each span as serde's JSON of the reference's `SpanData`, after its length in 8 bytes, big-endian.
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
    const sink = portSink(os, { kind: 'vsock', port: 10_240 }, SERVICE)
    await sink.send([STEP, CALL], neverAborted)
    const received = os.streams.tryRead(await host, 65_536)
    const recorded = RECORDED.map(({ length, json }) =>
      Buffer.concat([Buffer.from(length, 'hex'), Buffer.from(json.join(''))]),
    )
    expect(received?.toString('latin1')).toBe(Buffer.concat(recorded).toString('latin1'))
    sink.close()
  })
})
