import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import type { Socket } from 'node:net'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import {
  type AgentPod,
  killAgent,
  leftoversOf,
  NOTHING_LEFT,
  startPod,
} from '../../support/host/agent-pod.ts'
import {
  type HostPorts,
  listenForMany,
  type ManyConnections,
  makeHostPorts,
} from '../../support/host/host-ports.ts'
import { ResumingReader, ResumingWriter } from '../../support/host/resuming-host.ts'

const SIGPIPE = 13
const COUNT = 300_000
const ALL = Array.from({ length: COUNT }, (_, number) => `${number + 1}\n`).join('')
const KEPT_BYTES = 256 * 1024

describe('streams over ports with agent.stream_resume', () => {
  let host: HostPorts
  let pod: AgentPod
  const ports: ManyConnections[] = []
  const listen = async (port: number) => {
    const made = await listenForMany(join(host.folder, `port_${port}`))
    ports.push(made)
    return made
  }
  beforeAll(async () => {
    host = makeHostPorts({ stream_grace: '{ secs = 20 }', stream_resume: 'true' })
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

  it('open with 16 bytes, and end once the reader has told its total', async () => {
    const port = await listen(1)
    const added = await pod.add('host', 'few', ['echo', 'hello'], { ports: { stdoutPort: 1 } })
    const socket = await port.next()
    let bytes = Buffer.alloc(0)
    socket.on('data', (chunk: Buffer) => {
      bytes = Buffer.concat([bytes, chunk])
    })
    socket.resume()
    await expect.poll(() => bytes.subarray(8).toString('latin1')).toBe(`${'\0'.repeat(8)}hello\n`)
    const waited = added.wait()
    const isOver = await Promise.race([waited.then(() => true), sleep(800).then(() => false)])
    expect(isOver).toBe(false)
    socket.write(Buffer.from([6, 0, 0, 0, 0, 0, 0, 0]))
    expect(await waited).toBe(0)
  })

  it('lose and repeat nothing, however often connection and agent are lost', async () => {
    const port = await listen(2)
    const added = await pod.add('host', 'numbers', ['seq', `${COUNT}`], { ports: { stdoutPort: 2 } })
    const reader = new ResumingReader()
    for (let round = 1; round <= 8; round++) {
      const socket = await port.next()
      await reader.read(socket, round * 200_000)
      if (round % 4 === 0) await killAgent(pod)
      await loseDevice(socket)
    }
    const waited = added.wait()
    while (reader.total < ALL.length) await reader.read(await port.next())
    expect(reader.bytes.toString() === ALL).toBe(true)
    expect(await waited).toBe(0)
    expect(new Set(reader.openings.map(({ name }) => name)).size).toBe(1)
  })

  it('lose and repeat nothing when the agent dies at any step of a loss', { timeout: 120_000 }, async () => {
    const port = await listen(8)
    const added = await pod.add('host', 'steps', ['seq', `${COUNT}`], { ports: { stdoutPort: 8 } })
    const reader = new ResumingReader()
    for (let step = 0; step < 9; step++) {
      const socket = await port.next()
      await reader.read(socket, Math.min(reader.total + 150_000, ALL.length - 500_000)).catch(() => {})
      await loseDevice(socket)
      // A loss takes some milliseconds, from the relay's notice to the next connection.
      await sleep(step * 0.7)
      await killAgent(pod)
    }
    const waited = added.wait()
    // A connection that a dead agent has made ends before its opening.
    while (reader.total < ALL.length) await reader.read(await port.next()).catch(() => {})
    expect(reader.bytes.toString() === ALL).toBe(true)
    expect(await waited).toBe(0)
  })

  it('carry input, whose bytes the process gets once', async () => {
    const [stdin, stdout] = [await listen(3), await listen(4)]
    const added = await pod.add('host', 'cat', ['cat'], { ports: { stdinPort: 3, stdoutPort: 4 } })
    const bytes = randomBytes(40_000_000)
    const [writer, reader] = [new ResumingWriter(bytes), new ResumingReader()]
    const moving = Promise.all([
      stdin.next().then((socket) => writer.write(socket)),
      stdout.next().then((socket) => reader.read(socket)),
    ])
    for (let kills = 0; kills < 2; kills++) await killAgent(pod)
    await moving
    expect(writer.acknowledged).toBe(bytes.length)
    expect(await added.wait()).toBe(0)
    expect(reader.bytes.equals(bytes)).toBe(true)
  })

  it('hold at most 256 KiB that no reader has acknowledged', async () => {
    const port = await listen(5)
    const added = await pod.add('host', 'silent', ['seq', `${COUNT}`], { ports: { stdoutPort: 5 } })
    const socket = await port.next()
    let count = 0
    socket.on('data', (chunk: Buffer) => {
      count += chunk.length
    })
    socket.resume()
    await expect.poll(() => count, { timeout: 5000 }).toBe(16 + KEPT_BYTES)
    await sleep(200)
    expect(count).toBe(16 + KEPT_BYTES)
    socket.destroy()
    expect(await added.wait()).toBe(128 + SIGPIPE)
  })

  it('are refused when all others may hold 16 MiB, until one of them is over', async () => {
    const next = async (number: number) => {
      const port = await listen(100 + number)
      const added = await pod.add('host', `full-${number}`, ['cat'], { ports: { stdoutPort: 100 + number } })
      return { added, socket: await port.next() }
    }
    const most = (16 * 1024 * 1024) / KEPT_BYTES
    const all = []
    for (let number = 0; number < most; number++) all.push(await next(number))
    await listen(99)
    await expect(pod.add('host', 'refused', ['true'], { ports: { stdoutPort: 99 } })).rejects.toMatchObject({
      code: 'RESOURCE_EXHAUSTED',
      message: 'stdout: 64 outputs hold 16 MiB until they are acknowledged, want no more',
    })
    await expect(pod.add('host', 'calls', ['true'])).resolves.toBeDefined()
    const end = async ({ added, socket }: Awaited<ReturnType<typeof next>>) => {
      socket.resume().end(Buffer.alloc(8))
      await added.closeStdin()
      expect(await added.wait()).toBe(0)
    }
    for (const one of all.splice(0, 1)) await end(one)
    all.push(await next(most))
    for (const one of all) await end(one)
  })

  it('end when the host claims a total of the future', async () => {
    const port = await listen(6)
    const added = await pod.add('host', 'liar', ['seq', `${COUNT}`], { ports: { stdoutPort: 6 } })
    const socket = await port.next()
    socket.write(Buffer.from([0, 0, 0, 0, 1, 0, 0, 0]))
    expect(await added.wait()).toBe(128 + SIGPIPE)
    await pod.started.logged({ msg: 'stream ended: its host claims bytes that were not sent', port: '6' })
  })

  it('end when the host ends in the middle of a total', async () => {
    const port = await listen(12)
    const added = await pod.add('host', 'part', ['seq', `${COUNT}`], { ports: { stdoutPort: 12 } })
    const socket = await port.next()
    socket.resume()
    socket.end(Buffer.from([1, 2, 3]))
    expect(await added.wait()).toBe(128 + SIGPIPE)
  })

  it('go at once to the port that Attach names, when nobody acknowledges any more', async () => {
    const [dead, next] = [await listen(10), await listen(11)]
    const added = await pod.add('host', 'named', ['seq', `${COUNT}`], { ports: { stdoutPort: 10 } })
    const silent = await dead.next()
    await once(silent, 'readable')
    await pod.started.lifecycle.attach({ streams: [{ oldPort: 10, newPort: 11 }] })
    const reader = new ResumingReader()
    const waited = added.wait()
    await reader.read(await next.next())
    expect(reader.bytes.toString() === ALL).toBe(true)
    expect(await waited).toBe(0)
  })

  it('cannot share the connection of a terminal', async () => {
    const both = { terminal: true, ports: { stdinPort: 7, stdoutPort: 7 } }
    await expect(pod.add('host', 'tty', ['true'], both)).rejects.toMatchObject({
      code: 'INVALID_ARGUMENT',
      message:
        'stdin_port and stdout_port are both 7: with agent.stream_resume each stream has a port of its own',
    })
  })

  it('leave nothing behind', async () => {
    await pod.remove('host')
    await expect.poll(() => leftoversOf(pod.started, 'host')).toEqual(NOTHING_LEFT)
  })
})

/** A unix socket that is closed with unread bytes leaves ECONNRESET at the other end, as a removed vsock device does. */
async function loseDevice(socket: Socket): Promise<void> {
  await sleep(100)
  socket.destroy()
}
