import { join } from 'node:path'
import { buffer } from 'node:stream/consumers'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type AgentPod, killAgent, startPod } from '../../support/host/agent-pod.ts'
import { type HostPorts, listenForMany, makeHostPorts } from '../../support/host/host-ports.ts'

/** So many that the process still prints when its stream is detached. */
const COUNT = 1_000_000
const ALL = Array.from({ length: COUNT }, (_, number) => `${number + 1}\n`).join('')

describe('streams that are detached, without agent.stream_grace', () => {
  let host: HostPorts
  let pod: AgentPod
  beforeAll(async () => {
    host = makeHostPorts()
    pod = await startPod({ settings: host.settings })
    await pod.run('host', ['sleep', '1000'])
  })
  afterAll(async () => {
    await pod?.stop()
    host?.remove()
  })

  it.each([
    ['lose no byte', 21, false],
    ['lose no byte when the agent dies meanwhile', 22, true],
  ])('%s', async (_name, number, isKilled) => {
    const port = await listenForMany(join(host.folder, `port_${number}`))
    const execId = `numbers-${number}`
    const added = await pod.add('host', execId, ['seq', `${COUNT}`], { ports: { stdoutPort: number } })
    const reading = buffer(await port.next())
    const { lifecycle } = pod.started
    const { streams } = await lifecycle.detach({})
    const before = await reading
    expect(streams).toMatchObject([
      { containerId: 'host', execId, port: number, total: BigInt(before.length) },
    ])
    if (isKilled) await killAgent(pod)
    expect((await lifecycle.listStreams({})).streams).toEqual(streams)
    await expect(pod.add('host', 'late', ['true'])).rejects.toMatchObject({ code: 'UNAVAILABLE' })
    await lifecycle.attach({})
    const rest = await buffer(await port.next())
    expect(Buffer.concat([before, rest]).toString() === ALL).toBe(true)
    expect(await added.wait()).toBe(0)
    port.close()
  })
})
