import { existsSync, writeFileSync } from 'node:fs'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { SIGKILL } from '../../../src/base/signals.ts'
import { IntrospectionDefinition } from '../../../src/gen/microvm/agent/v1/introspection.ts'
import { clientFor, type ServiceClient } from '../../../src/rpc/client.ts'
import type { RemoteProcess } from '../../support/containers/pod.ts'
import { type AgentPod, initPidOf, startPod } from '../../support/host/agent-pod.ts'
import { grpcConnection } from '../../support/rpc/grpc-client.ts'

const LIMIT = 8n << 20n
const HOG = 'dd if=/dev/zero of=/dev/null bs=64M count=1'

describe('a container that runs out of memory', () => {
  let pod: AgentPod
  let connection: ReturnType<typeof grpcConnection>
  let introspection: ServiceClient<typeof IntrospectionDefinition>
  beforeAll(async () => {
    pod = await startPod()
    connection = grpcConnection(pod.started.path)
    introspection = clientFor(IntrospectionDefinition, connection)
  })
  afterAll(async () => {
    connection.close()
    await pod.stop()
  })

  async function run(id: string, script: string): Promise<RemoteProcess> {
    const linux = { Resources: { Memory: { Limit: LIMIT, Swap: LIMIT } } }
    return pod.run(id, ['sh', '-c', script], { linux })
  }

  it('is reported by GetOOMEvent, and its exit by WaitProcess', async () => {
    const polling = pod.agent.getOOMEvent({})
    await run('bystander', 'read line')
    const init = await run('hungry', `exec ${HOG}`)
    expect(await init.wait()).toBe(128 + SIGKILL)
    expect((await polling).containerId).toBe('hungry')
    await expect
      .poll(async () => (await introspection.listExits({ containerId: 'hungry' })).exits)
      .toMatchObject([{ status: 128 + SIGKILL, signal: SIGKILL, oomKilled: true }])
    const { events } = await introspection.getEvents({})
    expect(events).toContainEqual(expect.objectContaining({ outOfMemory: { containerId: 'hungry' } }))
    for (const id of ['hungry', 'bystander']) await pod.remove(id)
  })

  it('is reported each time', async () => {
    const init = await run('again', `while read line; do ${HOG} 2>/dev/null; echo "status $?"; done`)
    for (let round = 0; round < 3; round++) {
      const polling = pod.agent.getOOMEvent({})
      await init.write('go\n')
      expect((await polling).containerId).toBe('again')
      expect(await init.readUntil('\n')).toBe('status 137\n')
    }
    await pod.remove('again')
  })

  it('is reported to the next caller when the one that waited has hung up', async () => {
    const other = await pod.started.connect()
    const lost = other.agent.getOOMEvent({}).catch((error: unknown) => error)
    await other.health.check({})
    const init = await run('kept', `until [ -e /tmp/go ]; do sleep 0.01; done; exec ${HOG}`)
    const pid = initPidOf(pod.started, 'kept')
    // While the agent is stopped, the event and the hang-up both become pending, so it sees them at once.
    const agentPid = pod.started.agentPid()
    process.kill(agentPid, 'SIGSTOP')
    try {
      writeFileSync(`${pod.root}/tmp/go`, '')
      await expect.poll(() => existsSync(`/proc/${pid}`)).toBe(false)
      other.close()
    } finally {
      process.kill(agentPid, 'SIGCONT')
    }
    expect(await lost).toMatchObject({ code: 'UNAVAILABLE' })
    expect((await pod.agent.getOOMEvent({})).containerId).toBe('kept')
    expect(await init.wait()).toBe(128 + SIGKILL)
    await pod.remove('kept')
  })

  it('blocks no other call while GetOOMEvent waits', async () => {
    const polls = Array.from({ length: 20 }, () => pod.agent.getOOMEvent({}).catch((error: unknown) => error))
    const init = await pod.run('other', ['sh', '-c', 'exit 3'])
    expect(await init.wait()).toBe(3)
    await pod.remove('other')
    const ended = pod.agent.destroySandbox({})
    for (const poll of polls) expect(await poll).toMatchObject({ code: 'INTERNAL', message: '' })
    await ended
  })
})
