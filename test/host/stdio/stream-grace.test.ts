import type { Socket } from 'node:net'
import { join } from 'node:path'
import { buffer } from 'node:stream/consumers'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { type AgentPod, killAgent, startPod } from '../../support/host/agent-pod.ts'
import {
  type HostPorts,
  listenForMany,
  type ManyConnections,
  makeHostPorts,
} from '../../support/host/host-ports.ts'

const SIGPIPE = 13

/** Reads lines of a connection until one of them. */
async function linesUntil(socket: Socket, last: RegExp): Promise<readonly string[]> {
  let text = ''
  for await (const chunk of socket.iterator({ destroyOnReturn: false })) {
    text += String(chunk)
    const lines = text.split('\n').slice(0, -1)
    if (lines.some((line) => last.test(line))) return lines
  }
  return text.split('\n')
}

/** A unix socket that is closed with unread bytes leaves ECONNRESET at the other end, as a removed vsock device does. */
async function loseDevice(socket: Socket): Promise<void> {
  // More arrives than Node reads of a socket that nobody reads.
  await sleep(100)
  socket.destroy()
}

const COUNT = 2_000_000
const ALL = Array.from({ length: COUNT }, (_, number) => `${number + 1}\n`).join('')

describe('streams whose device goes, with agent.stream_grace', () => {
  let host: HostPorts
  let pod: AgentPod
  const ports: ManyConnections[] = []
  const listen = async (port: number) => {
    const made = await listenForMany(join(host.folder, `port_${port}`))
    ports.push(made)
    return made
  }
  beforeAll(async () => {
    host = makeHostPorts({ stream_grace: '{ secs = 3, nanos = 0 }' })
    pod = await startPod({ settings: host.settings })
    await pod.run('host', ['sleep', '1000'])
  })
  afterEach(() => {
    for (const port of ports.splice(0)) port.close()
  })
  afterAll(async () => {
    await pod?.stop()
    host?.remove()
  })

  const lost = (port: number) =>
    pod.started.log.filter(
      ({ msg = '', port: told }) => msg.includes('its connection was lost') && told === String(port),
    )

  it('go on at the same port, with exactly the told bytes lost', async () => {
    const port = await listen(21)
    const added = await pod.add('host', 'numbers', ['seq', `${COUNT}`], { ports: { stdoutPort: 21 } })
    const first = await port.next()
    const before = (await linesUntil(first, /^100$/)).join('\n').length + 1
    await loseDevice(first)
    const second = await port.next()
    const rest = (await buffer(second)).toString()
    await expect.poll(() => lost(21)).toHaveLength(1)
    const total = Number(lost(21)[0]?.total)
    expect(total).toBeGreaterThan(before)
    expect(rest === ALL.slice(total)).toBe(true)
    expect(await added.wait()).toBe(0)
  })

  /** Starts a process with all numbers, takes some of them and loses the connection while nobody listens. */
  async function loseAll(port: number, execId: string) {
    const listening = await listen(port)
    const added = await pod.add('host', execId, ['seq', `${COUNT}`], { ports: { stdoutPort: port } })
    const first = await listening.next()
    listening.close()
    await linesUntil(first, /^100$/)
    await loseDevice(first)
    await expect.poll(() => lost(port)).toHaveLength(1)
    return { added, total: Number(lost(port)[0]?.total) }
  }

  it('go on after the agent has died meanwhile, twice', async () => {
    const { added, total } = await loseAll(22, 'dying')
    await killAgent(pod)
    await killAgent(pod)
    const second = await (await listen(22)).next()
    expect((await buffer(second)).toString() === ALL.slice(total)).toBe(true)
    expect(await added.wait()).toBe(0)
  })

  it('end as before when nobody listens in time', async () => {
    const { added } = await loseAll(23, 'late')
    expect(await added.wait()).toBe(128 + SIGPIPE)
  })

  it('end at once when the host closes their connection', async () => {
    const port = await listen(24)
    const script = 'echo once; sleep 0.2; while echo more; do usleep 10000; done'
    const added = await pod.add('host', 'closed', ['sh', '-c', script], { ports: { stdoutPort: 24 } })
    const connection = await port.next()
    await linesUntil(connection, /^once$/)
    connection.destroy()
    expect(await added.wait()).toBe(128 + SIGPIPE)
    expect(lost(24)).toEqual([])
  })
})
