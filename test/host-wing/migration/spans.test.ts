import type { Server } from 'node:net'
import { join } from 'node:path'
import { afterEach, describe, expect, it } from 'vitest'
import { silentLogger } from '../../../src/base/log.ts'
import { DetachResponse } from '../../../src/gen/microvm/agent/v1/lifecycle.ts'
import { guestSocket } from '../../../src/host/instance/machine/daemon-steps.ts'
import { memoryRegistry } from '../../../src/host/instance/registry/memory-registry.ts'
import { openSecrets } from '../../../src/host/secrets/secrets.ts'
import { CallJournal } from '../../../src/host/service/call-journal.ts'
import { openApi } from '../../../src/host/service/open-api.ts'
import type { FinishedSpan } from '../../../src/rpc/tracing/finished-span.ts'
import { encodeResponseFrame } from '../../../src/rpc/ttrpc/messages.ts'
import { daemonClient } from '../../support/host-wing/running-daemon.ts'
import { startAgent } from '../../support/wing/fakes/fake-agent.ts'
import { ADMIN } from '../../support/wing/requests.ts'
import { SuspendedWing } from '../../support/wing/suspended-wing.ts'

const TRACE = '4bf92f3577b34da6a3ce929d0e0e4736'
const SPAN = '00f067aa0ba902b7'
const CALLERS = `00-${TRACE}-${SPAN}-01`
const DETACHED = DetachResponse.encode(DetachResponse.create()).finish()

const closers: (() => unknown)[] = []
afterEach(async () => {
  for (const close of closers.splice(0)) await close()
})

/** A daemon on a socket, and what it was asked to trace; `agent` is with which trace context its guest was told to detach. */
async function served({ isTraced = true } = {}) {
  const wing = new SuspendedWing()
  const spans: FinishedSpan[] = []
  const agent: (string | undefined)[] = []
  if (isTraced) wing.spans = { add: (span) => void spans.push(span), dropped: 0 }
  const instances = await wing.daemon()
  await wing.makeWithTap(instances)
  const server: Server = await startAgent(guestSocket(wing.folderOf('web')), [], {
    Detach: (socket, streamId, traceparent) => {
      agent.push(traceparent)
      socket.write(encodeResponseFrame(streamId, DETACHED))
    },
  })
  const log = silentLogger()
  const journal = await CallJournal.open({ registry: memoryRegistry(), nowMs: Date.now, log })
  const secrets = await openSecrets(join(wing.folder, 'secrets'))
  const api = openApi({ instances, secrets, journal, tenants: [], log })
  const socket = join(wing.folder, 'admin.sock')
  await api.listen(socket)
  const client = daemonClient(socket)
  closers.push(
    client.close,
    () => api.close(),
    () => server.close(),
  )
  const suspend = (traceparent?: string) =>
    client.instances.suspendInstance(
      { key: 'web', name: 'one' },
      traceparent === undefined ? {} : { metadata: { traceparent } },
    )
  return { wing, instances, spans, agent, suspend }
}

describe('the spans of an operation', () => {
  it('are those of its timeline, below the span of its caller and above those of the agent', async () => {
    const { agent, instances, spans, suspend } = await served()
    await suspend(CALLERS)
    const [operation, ...steps] = spans
    expect(operation).toMatchObject({
      ...{ name: 'suspend', kind: 'call', traceId: TRACE, parentSpanId: SPAN, isFailed: false },
      attributes: { instance: 'web' },
    })
    const [machine] = await instances.listSaved(ADMIN)
    const startNs = (machine?.operation?.startedMs ?? 0n) * 1_000_000n
    // The manifest was written in its own step.
    const told = (machine?.operation?.steps ?? []).slice(0, -1).map(({ durationUs, name, startUs }) => ({
      ...{ name, kind: 'step', traceId: TRACE, parentSpanId: operation?.spanId, isFailed: false },
      startNs: startNs + startUs * 1000n,
      endNs: startNs + (startUs + durationUs) * 1000n,
    }))
    expect(steps.slice(0, told.length)).toMatchObject(told)
    expect(steps.slice(told.length).map(({ name }) => name)).toEqual(['manifest', 'end'])
    const detach = steps.find(({ name }) => name === 'detach')
    expect(agent).toEqual([`00-${TRACE}-${detach?.spanId}-01`])
    expect(operation?.endNs).toBe(steps.at(-1)?.endNs)
    expect(new Set(spans.map(({ spanId }) => spanId)).size).toBe(spans.length)
  })

  it('begin a trace without a caller that has one, and tell which step has failed', async () => {
    const { instances, spans, suspend, wing } = await served()
    wing.atStep = async (_, step) => {
      if (step === 'memory') throw new Error('asked for')
    }
    for (const traceparent of [undefined, `${CALLERS}-more`]) {
      spans.length = 0
      await expect(suspend(traceparent)).rejects.toThrow('asked for')
      const [operation] = spans
      expect(operation?.traceId).toMatch(/^[0-9a-f]{32}$/)
      expect(operation).toMatchObject({
        parentSpanId: undefined,
        attributes: { failure: expect.stringContaining('asked for') },
      })
      expect(operation?.traceId).not.toBe(TRACE)
      expect(spans.filter(({ isFailed }) => isFailed).map(({ name }) => name)).toEqual(['suspend', 'memory'])
    }
    expect(instances.metrics()).toContain(
      'microvm_saved_machines_total{operation="suspend",outcome="failed",step="memory"} 2',
    )
  })

  it('are not made for a caller that wants none, whose trace context goes on', async () => {
    const { agent, spans, suspend } = await served()
    const none = CALLERS.replace(/01$/, '00')
    await suspend(none)
    expect(spans).toEqual([])
    expect(agent).toEqual([none])
  })

  it('are not made without a collector, and the trace context of the caller goes on', async () => {
    const { agent, instances, suspend } = await served({ isTraced: false })
    await suspend(CALLERS)
    expect(agent).toEqual([CALLERS])
    expect(instances.metrics()).not.toContain('spans_dropped')
  })
})
