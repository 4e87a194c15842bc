import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { SIGKILL } from '../../../src/base/signals.ts'
import { AgentServiceDefinition } from '../../../src/gen/agent.ts'
import { clientFor } from '../../../src/rpc/client.ts'
import type { TtrpcClient } from '../../../src/rpc/ttrpc/client.ts'
import { connectionsOf, FRAMINGS, type Framing } from '../../sequences/wires.ts'
import { type AgentPod, leftoversOf, mountPointsOf, startPod } from '../../support/host/agent-pod.ts'
import { COPIES, FIXTURES, STATUS_TABLE } from './refusals/status-table.ts'

describe('the status of a call that cannot be done', () => {
  let pod: AgentPod
  let connections: Record<Framing, Pick<TtrpcClient, 'call' | 'close'>>
  beforeAll(async () => {
    pod = await startPod()
    const { path } = pod.started
    connections = { ttrpc: await connectionsOf.ttrpc(path), grpc: await connectionsOf.grpc(path) }
    await furnish(pod)
  })
  afterAll(async () => {
    for (const framing of FRAMINGS) connections[framing].close()
    await pod.stop()
  })

  describe.each(FRAMINGS)('over %s', (framing) => {
    it.each(STATUS_TABLE)('$rpc when $when: $code', async ({ call, code, text }) => {
      const agent = clientFor(AgentServiceDefinition, connections[framing])
      const message = typeof text === 'string' ? text : expect.stringMatching(text)
      await expect(call(agent, pod.root)).rejects.toMatchObject({ code, message })
    })

    it('leaves everything unchanged', async () => {
      const { mounts, cgroups, bundles, runtimeState } = leftoversOf(pod.started, 'unmade', 'new')
      expect([mounts, cgroups, bundles, runtimeState]).toEqual([[], [], [], []])
      const execId = `after-${framing}`
      const added = await pod.add(FIXTURES.running, execId, ['hostname'])
      expect((await added.readAll()).toString()).toBe('podname\n')
      await added.wait()
    })
  })

  it('keeps an exec id until its status is collected', async () => {
    const added = await pod.add(FIXTURES.running, 'brief', ['sleep', '1000'])
    await added.signal(SIGKILL)
    expect(await added.wait()).toBe(128 + SIGKILL)
    await expect(added.wait()).rejects.toMatchObject({ code: 'NOT_FOUND' })
    const again = await pod.add(FIXTURES.running, 'brief', ['true'])
    expect(await again.wait()).toBe(0)
  })

  it('CreateSandbox refuses a second sandbox and touches nothing', async () => {
    const before = mountPointsOf(pod.started)
    const creating = pod.agent.createSandbox({ sandboxId: 'second', hostname: 'other' })
    await expect(creating).rejects.toMatchObject({ code: 'INTERNAL' })
    expect(mountPointsOf(pod.started)).toEqual(before)
  })

  it('accepts CloseStdin any number of times', async () => {
    const { running: containerId, ended: execId } = FIXTURES
    await pod.agent.closeStdin({ containerId, execId })
    expect(await pod.agent.closeStdin({ containerId, execId })).toEqual({})
    expect(await pod.agent.writeStdin({ containerId, execId, data: Buffer.alloc(0) })).toEqual({ len: 0 })
  })
})

async function furnish(pod: AgentPod): Promise<void> {
  const { running, unstarted, paused, collected, sleeping, ended, deaf } = FIXTURES
  await pod.run(running, ['sleep', '1000'])
  await pod.create(unstarted, ['true'])
  await pod.run(paused, ['sleep', '1000'])
  await pod.agent.pauseContainer({ containerId: paused })
  await (await pod.run(collected, ['true'])).wait()
  await pod.add(running, sleeping, ['sleep', '1000'])
  await (await pod.add(running, ended, ['sleep', '1000'])).closeStdin()
  const closing = await pod.add(running, deaf, ['sh', '-c', 'exec <&-; echo closed; sleep 1000'])
  await closing.readUntil('closed')
  const data = Buffer.from('half')
  const file = { fileMode: 0o100_644, dirMode: 0o755, data }
  await pod.agent.copyFile({ ...file, path: COPIES.half, fileSize: 8n })
  await pod.agent.copyFile({ ...file, path: COPIES.gap, fileSize: 9n })
  await pod.agent.copyFile({ path: COPIES.link, fileMode: 0o120_777, data: Buffer.from('/etc') })
}
