import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { HealthDefinition } from '../../../src/gen/health.ts'
import { clientFor } from '../../../src/rpc/client.ts'
import { createContainerRequest } from '../../support/containers/container-requests.ts'
import { type AgentPod, startPod } from '../../support/host/agent-pod.ts'
import { type AgentProcess, startAgent } from '../../support/host/agent-process.ts'
import { type HostPorts, makeHostPorts, type OneConnection } from '../../support/host/host-ports.ts'
import {
  type OtlpCollector,
  type ReceivedSpan,
  startCollector,
  startHangingCollector,
} from '../../support/host/otlp-collector.ts'
import { grpcConnection } from '../../support/rpc/grpc-client.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

const TRACE = '4bf92f3577b34da6a3ce929d0e0e4736'
const CALLER = '00f067aa0ba902b7'
const SAMPLED = `00-${TRACE}-${CALLER}-01`
const TRACED = '/run/kata-containers/traced'
const CREATE = 'grpc.AgentService/CreateContainer'
const CHECK = 'grpc.Health/Check'

function attributesOf(span: ReceivedSpan | undefined): Record<string, string> {
  return Object.fromEntries(span?.attributes.map(({ key, value }) => [key, value.stringValue]) ?? [])
}

describe('an agent that traces its calls', () => {
  let collector: OtlpCollector
  let ports: HostPorts
  let forwarder: OneConnection
  let pod: AgentPod

  beforeAll(async () => {
    collector = await startCollector()
    const settings = { otlp_endpoint: `"${collector.endpoint}"`, tracing: 'true' }
    ports = makeHostPorts({ ...settings, hotplug_timeout: '{ secs = 1 }' })
    forwarder = await ports.listen(10_240)
    pod = await startPod({ settings: ports.settings })
  })

  afterAll(async () => {
    await pod?.stop()
    ports?.remove()
    collector?.stop()
  })

  it('sends CreateContainer with its steps to a collector, below the span that the caller has named', async () => {
    const storage = { driver: 'ephemeral', source: 'tmpfs', fstype: 'tmpfs', mountPoint: TRACED }
    const request = createContainerRequest('c1', pod.root, ['sleep', '1000'], { storages: [storage] })
    await pod.agent.createContainer(request, { metadata: { traceparent: SAMPLED } })

    const spans = await collector.until(({ name }) => name === CREATE)

    const traced = spans.filter(({ traceId }) => traceId === TRACE)
    const call = traced.find(({ name }) => name === CREATE)
    expect(call).toMatchObject({ parentSpanId: CALLER, kind: 2, status: { code: 0 } })
    expect(attributesOf(call)).toMatchObject({
      ...{ 'rpc.system': 'ttrpc', 'rpc.method': 'CreateContainer', 'rpc.status': 'OK' },
      containerId: 'c1',
    })
    const steps = traced.filter((span) => span !== call)
    expect(steps.every(({ parentSpanId }) => parentSpanId === call?.spanId)).toBe(true)
    expect(steps.map(({ name }) => name)).toEqual(expect.arrayContaining(['storage', 'mount', 'runtime']))
    expect(attributesOf(steps.find(({ name }) => name === 'storage'))).toEqual({ detail: TRACED })
    for (const { startTimeUnixNano, endTimeUnixNano } of steps) {
      expect(BigInt(startTimeUnixNano)).toBeGreaterThanOrEqual(BigInt(call?.startTimeUnixNano ?? 0))
      expect(BigInt(endTimeUnixNano)).toBeGreaterThanOrEqual(BigInt(startTimeUnixNano))
    }
    expect(new Set(collector.requests)).toEqual(new Set(['POST /v1/traces application/json']))
  })

  it('sends the wait for an absent device as failed', async () => {
    const storage = { driver: 'blk', source: '1f', fstype: 'ext4', mountPoint: '/run/kata-containers/disk' }
    const request = createContainerRequest('c2', pod.root, ['true'], { storages: [storage] })
    await expect(pod.agent.createContainer(request)).rejects.toThrow()
    const spans = await collector.until(({ name, status }) => name === CREATE && status.code === 2)
    const call = spans.find(({ name, status }) => name === CREATE && status.code === 2)
    const steps = spans.filter(({ parentSpanId }) => parentSpanId === call?.spanId)
    expect(steps.find(({ name }) => name === 'device')).toMatchObject({ status: { code: 2 } })
    expect(attributesOf(call)['rpc.status']).not.toBe('OK')
  })

  it('takes the span of a caller from the headers of gRPC, too', async () => {
    const trace = 'a'.repeat(32)
    const connection = grpcConnection(pod.started.path)
    const metadata = { traceparent: `00-${trace}-${CALLER}-01` }
    await clientFor(HealthDefinition, connection).check({}, { metadata })
    connection.close()
    const spans = await collector.until(({ traceId }) => traceId === trace)
    expect(spans.find(({ traceId }) => traceId === trace)).toMatchObject({
      parentSpanId: CALLER,
      name: CHECK,
    })
  })

  it('sends no span of a call whose caller does not trace it', async () => {
    const [without, after] = ['b'.repeat(32), 'c'.repeat(32)]
    const check = (traceparent: string) => pod.started.health.check({}, { metadata: { traceparent } })
    await check(`00-${without}-${CALLER}-00`)
    await check(`00-${after}-${CALLER}-01`)
    const spans = await collector.until(({ traceId }) => traceId === after)
    expect(spans.filter(({ traceId }) => traceId === without)).toEqual([])
  })

  it('ignores what is no trace context, with one line', async () => {
    const version = () => collector.spans.filter(({ name }) => name === 'grpc.Health/Version')
    const wrong = [
      'nonsense',
      '',
      `${SAMPLED}-${'x'.repeat(10_240)}`,
      `ff${SAMPLED.slice(2)}`,
      'ü'.repeat(32),
    ]
    for (const traceparent of wrong) {
      await pod.started.health.version({}, { metadata: { traceparent } })
    }
    await collector.until(() => version().length === wrong.length)
    expect(version().map(({ parentSpanId }) => parentSpanId)).toEqual(wrong.map(() => undefined))
    expect(version().some(({ traceId }) => traceId === TRACE)).toBe(false)
    expect(pod.started.log.filter(({ msg }) => msg === 'traceparent ignored')).toMatchObject([
      { rpc: 'grpc.Health/Version' },
    ])
  })

  it('sends what is left when it stops, and the same to the port of Kata’s forwarder', async () => {
    const sent = forwarder.all()
    await pod.started.health.check({}, { metadata: { traceparent: `00-${'d'.repeat(32)}-${CALLER}-01` } })
    await pod.started.stop()
    const spans = spansOf(await sent)
    expect(spans.map(({ name }) => name)).toEqual(collector.spans.map(({ name }) => name))
    const call = spans.find(({ name, text }) => name === CREATE && text.includes('"c1"'))
    expect(call?.text).toContain(`"trace_id":${BigInt(`0x${TRACE}`)},`)
    expect(call).toMatchObject({
      ...{ span_kind: 'Server', status_code: 'Unset' },
      start_time: { secs_since_epoch: expect.any(Number), nanos_since_epoch: expect.any(Number) },
    })
    expect(call?.text).toContain(`"parent_span_id":${BigInt(`0x${CALLER}`)},`)
    expect(spans.at(-1)?.text).toContain(`"trace_id":${BigInt(`0x${'d'.repeat(32)}`)},`)
  })
})

/** The spans that a forwarder received, with their texts, because their ids exceed JavaScript's safe integers. */
function spansOf(sent: Buffer): readonly { readonly name: string; readonly text: string }[] {
  const spans = []
  let offset = 0
  while (offset < sent.length) {
    const length = Number(sent.readBigUInt64BE(offset))
    const text = sent.subarray(offset + 8, offset + 8 + length).toString()
    spans.push({ ...JSON.parse(text), text })
    offset += 8 + length
  }
  return spans
}

describe('an agent whose collector', () => {
  let started: AgentProcess
  let ports: HostPorts
  afterEach(async () => {
    await started?.stop()
    ports?.remove()
  })

  it('hangs answers calls and stops as without one', async () => {
    const collector = await startHangingCollector()
    ports = makeHostPorts({ otlp_endpoint: `"${collector.endpoint}"` })
    started = await startAgent({ settings: ports.settings })
    await started.health.check({})
    await collector.asked
    await started.health.check({})
    process.kill(started.agentPid(), 'SIGTERM')
    const { count } = await started.logged({ msg: 'trace spans dropped' })
    expect(Number(count)).toBe(2)
    collector.stop()
  })

  it('refuses connections logs it once', async () => {
    const collector = await startCollector()
    collector.stop()
    ports = makeHostPorts({ otlp_endpoint: `"${collector.endpoint}"`, tracing: 'true' })
    started = await startAgent({ settings: ports.settings })
    await started.health.check({})
    const [first, second] = await Promise.all([
      started.logged({ msg: 'trace spans not sent', to: `${collector.endpoint}/v1/traces` }),
      started.logged({ msg: 'trace spans not sent', to: join(ports.folder, 'port_10240') }),
    ])
    expect(first?.error).toContain('ECONNREFUSED')
    expect(second?.error).toContain('ENOENT')
    process.kill(started.agentPid(), 'SIGTERM')
    await started.logged({ msg: 'stopped' })
    expect(started.log.filter(({ msg }) => msg === 'trace spans not sent')).toHaveLength(2)
  })

  it('does not take the spans drops them', async () => {
    const collector = await startCollector(503)
    ports = makeHostPorts({ otlp_endpoint: `"${collector.endpoint}/own"` })
    started = await startAgent({ settings: ports.settings })
    await started.health.check({})
    const told = await started.logged({ msg: 'trace spans not sent' })
    expect(told).toMatchObject({ to: `${collector.endpoint}/own`, error: 'HTTP status 503' })
    const { metrics } = await started.agent.getMetrics({})
    expect(metrics).toMatch(/^microvm_agent_trace_spans_dropped_total [1-9]/m)
    collector.stop()
  })
})

const SPY = `
const { basename } = require('node:path')
const { Module } = require('node:module')
const load = Module._load
const loaded = []
Module._load = (name, ...rest) => {
  if (/tracing\\.cjs$|^node:http$/.test(name)) loaded.push(basename(name))
  return load(name, ...rest)
}
process.on('exit', () => console.log('loaded:', loaded.join(' ')))
`

describe('what traces calls', () => {
  it.each([
    ['is loaded when it is on', { tracing: 'true' }, 'loaded: tracing.cjs'],
    ['is not loaded when it is off', { tracing: 'false' }, 'loaded: '],
  ])('%s', async (_what, settings, text) => {
    const spy = join(temporaryFolder(), 'spy.cjs')
    writeFileSync(spy, SPY)
    const ports = makeHostPorts(settings)
    const environment = { NODE_OPTIONS: `--require ${spy}` }
    const started = await startAgent({ settings: ports.settings, environment })
    await started.health.check({}, { metadata: { traceparent: SAMPLED } })
    process.kill(started.agentPid(), 'SIGTERM')
    expect(await started.logged({ msg: 'console', text })).toMatchObject({ text })
    await started.stop()
    ports.remove()
  })
})
