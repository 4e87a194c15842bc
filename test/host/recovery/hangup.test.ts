import { once } from 'node:events'
import { connect } from 'node:net'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { grpcConnection } from '../../../src/client/connection/grpc-connection.ts'
import { IntrospectionDefinition } from '../../../src/gen/microvm/agent/v1/introspection.ts'
import { clientFor } from '../../../src/rpc/client.ts'
import { ttrpcClient } from '../../../src/rpc/ttrpc/client.ts'
import { type AgentPod, killAgent, startPod } from '../../support/host/agent-pod.ts'

const SIGHUP = 1
/** Enough for a caller to come back after a death of the agent on a busy host. */
const GRACE_MS = 15_000
/** A shell that stays until it is told to end. */
const STAYS = ['sh', '-c', 'while sleep 0.1; do :; done']

describe.each([
  ['ttrpc', ttrpcClient],
  ['grpc', grpcConnection],
] as const)('programs whose callers by %s lose their device, and whose agent dies', (framing, client) => {
  let pod: AgentPod
  beforeAll(async () => {
    const grace = `{ secs = ${GRACE_MS / 1000}, nanos = 0 }`
    pod = await startPod({ tcp: true, settings: { stream_grace: grace } })
    await pod.run('web', ['sleep', '1000'])
  })
  afterAll(() => pod?.stop())

  /** A caller that has the process by SignalOnHangup. */
  async function caller(execId: string) {
    const socket = connect(pod.started.port, '127.0.0.1')
    await once(socket, 'connect')
    const { signalOnHangup } = clientFor(IntrospectionDefinition, client(socket))
    const waiting = signalOnHangup({ containerId: 'web', execId, signal: SIGHUP })
    waiting.catch(() => {})
    const { introspection } = pod.started
    const waits = async () => {
      const { calls } = await introspection.listCalls({})
      return calls.filter(({ method, step }) => method.endsWith('SignalOnHangup') && step.includes(execId))
    }
    await expect.poll(waits).toHaveLength(1)
    return { waiting, lose: () => void socket.resetAndDestroy(), hangUp: () => void socket.destroy() }
  }

  it('go on when the caller comes back within the grace, and get the signal at its end when it does not', async () => {
    const [kept, left, detached] = [`kept-${framing}`, `left-${framing}`, `detached-${framing}`]
    const stays = await pod.add('web', detached, STAYS)
    const ended = await caller(detached)
    await pod.started.lifecycle.detach({})
    await expect(ended.waiting).rejects.toMatchObject({ code: 'UNAVAILABLE' })
    await pod.started.lifecycle.attach({})
    const endOfDetached = stays.wait()
    const added = [await pod.add('web', kept, STAYS, { terminal: true }), await pod.add('web', left, STAYS)]
    const ends = added.map((each) => each.wait())
    const callers = [await caller(kept), await caller(left)]
    const lostMs = performance.now()
    for (const each of callers) each.lose()
    await Promise.all(callers.map(({ waiting }) => expect(waiting).rejects.toThrow()))
    await killAgent(pod)
    const again = await caller(kept)
    expect(await ends[1]).toBe(128 + SIGHUP)
    expect(performance.now() - lostMs).toBeGreaterThanOrEqual(GRACE_MS)
    expect(await endOfDetached).toBe(128 + SIGHUP)
    const { processes } = await pod.started.introspection.listProcesses({ containerId: 'web' })
    expect(processes.find(({ execId }) => execId === kept)?.exitStatus).toBeUndefined()
    again.hangUp()
    expect(await ends[0]).toBe(128 + SIGHUP)
  })
})
