import type { Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import {
  type AgentPod,
  killAgent,
  leftoversOf,
  NOTHING_LEFT,
  startPod,
} from '../../support/host/agent-pod.ts'
import { dialFrom } from '../../support/host/dial-from.ts'
import { type HostPorts, makeHostPorts } from '../../support/host/host-ports.ts'
import { openingFor, ResumingReader, ResumingWriter } from '../../support/host/resuming-host.ts'

const SIGPIPE = 13
const LISTENER = 1027
const COUNT = 400_000
const ALL = Buffer.from(Array.from({ length: COUNT }, (_, number) => `${number + 1}\n`).join(''))

describe('streams that resume, for which the host dials', () => {
  let host: HostPorts
  let pod: AgentPod
  const dial = (port: number) => dialFrom(host.folder, port, LISTENER)
  const accepted = (port: number) =>
    pod.started.logged({ msg: 'connection for a stream waits', port: `${port}` })
  const named = (port: number) =>
    pod.started.logged({ msg: 'connection for a stream has its name', port: `${port}` })
  beforeAll(async () => {
    const settings = { stream_grace: '{ secs = 60 }', stream_resume: 'true', log_level: '"debug"' }
    host = makeHostPorts({ ...settings, passfd_listener_port: `${LISTENER}` })
    pod = await startPod({ settings: host.settings })
    await pod.run('host', ['sleep', '1000'])
  })
  afterAll(async () => {
    await pod?.stop()
    host?.remove()
  })

  /** A stream of all numbers that has lost its connection after some of them. */
  async function lost(execId: string, port: number) {
    const first = await dial(port)
    const added = await pod.add('host', execId, ['seq', `${COUNT}`], { ports: { stdoutPort: port } })
    const reader = new ResumingReader()
    await reader.read(first, 200_000)
    await loseDevice(first)
    await detached(port)
    return { added, reader, name: reader.openings[0]?.name ?? '' }
  }
  const detached = (port: number) => pod.started.logged({ msg: 'stream detached', port: `${port}` })

  it('go on over a connection from any port that begins with their name, also of another agent', async () => {
    const { added, reader, name } = await lost('named', 101)
    const second = await dial(102)
    second.write(openingFor(name, reader.total))
    await reader.read(second, 500_000)
    expect(reader.openings[1]).toMatchObject({ name })
    await loseDevice(second)
    await detached(102)
    const third = await dial(103)
    await killAgent(pod)
    third.write(openingFor(name, reader.total))
    const waited = added.wait()
    await reader.read(third)
    expect(reader.bytes.equals(ALL)).toBe(true)
    expect(await waited).toBe(0)
  })

  it('go on with input', async () => {
    const [stdin, stdout] = [await dial(111), await dial(112)]
    const added = await pod.add('host', 'cat', ['cat'], { ports: { stdinPort: 111, stdoutPort: 112 } })
    const [writer, reader] = [new ResumingWriter(ALL), new ResumingReader()]
    const reading = reader.read(stdout)
    await writer.write(stdin, 300_000)
    const { streams } = await pod.started.lifecycle.detach({ timeoutMs: 60_000 })
    await reading
    expect(streams.map(({ port }) => port)).toEqual([111, 112])
    await pod.started.lifecycle.attach({})
    const [nextStdin, nextStdout] = [await dial(113), await dial(114)]
    const opening = openingFor(writer.openings[0]?.name ?? '', writer.acknowledged)
    nextStdin.write(opening.subarray(0, 5))
    nextStdout.write(openingFor(reader.openings[0]?.name ?? '', reader.total))
    await Promise.all([accepted(113), named(114)])
    nextStdin.write(opening.subarray(5))
    await Promise.all([writer.write(nextStdin), reader.read(nextStdout)])
    expect(reader.bytes.equals(ALL)).toBe(true)
    expect(await added.wait()).toBe(0)
  })

  it('wait for their name on a connection whose port Attach names', async () => {
    const { added, reader, name } = await lost('attached', 121)
    const opening = openingFor(name, reader.total)
    await pod.started.lifecycle.attach({ streams: [{ oldPort: 121, newPort: 122 }] })
    await killAgent(pod)
    const second = await dial(122)
    second.write(opening.subarray(0, 10))
    await accepted(122)
    second.write(opening.subarray(10))
    const waited = added.wait()
    await reader.read(second)
    expect(reader.bytes.equals(ALL)).toBe(true)
    expect(await waited).toBe(0)
  })

  it('take the last of two connections with one name, and close the other', async () => {
    const first = await dial(131)
    const added = await pod.add('host', 'twice', ['seq', `${COUNT}`], { ports: { stdoutPort: 131 } })
    const reader = new ResumingReader()
    await reader.read(first, 200_000)
    const opening = openingFor(reader.openings[0]?.name ?? '', reader.total)
    const [early, late] = [await dial(132), await dial(133)]
    early.write(opening)
    await named(132)
    late.write(opening)
    await closed(early)
    expect(early.bytesRead).toBe(0)
    await loseDevice(first)
    const waited = added.wait()
    await reader.read(late)
    expect(reader.bytes.equals(ALL)).toBe(true)
    expect(await waited).toBe(0)
  })

  it('take no connection that only comes from their port, or has another name', async () => {
    const { added, reader, name } = await lost('other', 141)
    const [same, other] = [await dial(141), await dial(142)]
    other.write(openingFor('ff'.repeat(8), reader.total))
    await Promise.all([accepted(141), named(142)])
    const right = await dial(143)
    right.write(openingFor(name, reader.total))
    const waited = added.wait()
    await reader.read(right)
    expect(reader.bytes.equals(ALL)).toBe(true)
    expect(await waited).toBe(0)
    expect([same.bytesRead, other.bytesRead]).toEqual([0, 0])
    for (const socket of [same, other]) socket.destroy()
  })

  it('end when the name comes with a total of the future', async () => {
    const { added, name } = await lost('liar', 151)
    const second = await dial(152)
    second.write(openingFor(name, 2 ** 40))
    expect(await added.wait()).toBe(128 + SIGPIPE)
    const stdin = await dial(153)
    const cat = await pod.add('host', 'in', ['cat'], { ports: { stdinPort: 153 } })
    const writer = new ResumingWriter(Buffer.alloc(1000))
    await writer.write(stdin, 900)
    await pod.started.lifecycle.detach({ timeoutMs: 60_000 })
    await pod.started.lifecycle.attach({})
    const next = await dial(154)
    next.write(openingFor(writer.openings[0]?.name ?? '', 5000))
    expect(await cat.wait()).toBe(0)
    const unsent = 'stream ended: its host claims bytes that were not sent'
    await pod.started.logged({ msg: unsent, stream: 'stdin' })
  })

  it('leave nothing behind', async () => {
    await pod.remove('host')
    await expect.poll(() => leftoversOf(pod.started, 'host')).toEqual(NOTHING_LEFT)
  })
})

async function closed(socket: Socket): Promise<void> {
  socket.resume()
  if (!socket.closed) await new Promise((resolve) => socket.once('close', resolve).once('end', resolve))
}

/** A unix socket that is closed with unread bytes leaves ECONNRESET at the other end, as a removed vsock device does. */
async function loseDevice(socket: Socket): Promise<void> {
  await sleep(100)
  socket.destroy()
}
