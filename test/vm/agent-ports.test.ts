import { createHash, randomBytes } from 'node:crypto'
import type { Socket } from 'node:net'
import { buffer } from 'node:stream/consumers'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { connectSocket } from '../../src/microvm/connect-socket.ts'
import { hybridHandshake } from '../../src/microvm/vsock/hybrid.ts'
import { guestSocketIn } from '../../src/microvm/vsock/vhost-user-link.ts'
import { listenForOne, type OneConnection } from '../host/host-ports.ts'
import { cannotBoot, type TestGuest } from './boot-guest.ts'
import { bootPod, type GuestPod } from './guest-pod.ts'

const SIGPIPE = 13
const LISTENER = 1027

describe.skipIf(cannotBoot() !== undefined)('standard streams over vsock ports of the host', () => {
  let guest: TestGuest
  let pod: GuestPod
  beforeAll(async () => {
    ;({ guest, pod } = await bootPod({ vsock: 'vhost-user' }))
    await pod.run('host', ['sleep', '1000'])
  })
  afterAll(() => guest?.stop())

  /** The host listens for one connection of the guest. */
  const listen = (port: number): Promise<OneConnection> =>
    listenForOne(`${guestSocketIn(guest.folder)}_${port}`)

  it('of a container are exact, and end with it', async () => {
    const [stdout, stderr] = [await listen(5002), await listen(5003)]
    const init = await pod.run('exact', ['sh', '-c', 'printf out; printf error >&2; exit 5'], {
      ports: { stdoutPort: 5002, stderrPort: 5003 },
    })
    expect((await Promise.all([stdout.all(), stderr.all()])).map(String)).toEqual(['out', 'error'])
    expect(await init.wait()).toBe(5)
    await pod.remove('exact')
  })

  it('pass many bytes from the host to the process', async () => {
    const stdin = await listen(5011)
    const added = await pod.add('host', 'in', ['sha256sum'], { ports: { stdinPort: 5011 } })
    const bytes = randomBytes(4 * 1024 * 1024)
    ;(await stdin.connection).end(bytes)
    expect((await added.readAll()).toString()).toBe(`${digest(bytes)}  -\n`)
    expect(await added.wait()).toBe(0)
  })

  it('pass many bytes from the process to the host', async () => {
    const stdout = await listen(5012)
    const script = 'seq 1 2000000 | head -c 8388608'
    const added = await pod.add('host', 'out', ['sh', '-c', script], { ports: { stdoutPort: 5012 } })
    const received = await stdout.all()
    expect(received.equals(numbers(8_388_608))).toBe(true)
    expect(await added.wait()).toBe(0)
  })

  it('give the process SIGPIPE when the reader goes away', async () => {
    const stdout = await listen(5013)
    const added = await pod.add('host', 'yes', ['yes'], { ports: { stdoutPort: 5013 } })
    ;(await stdout.connection).destroy()
    expect(await added.wait()).toBe(128 + SIGPIPE)
  })

  it('of a terminal go both ways on one connection, and hang it up when that is closed', async () => {
    const both = await listen(5014)
    const added = await pod.add('host', 'tty', ['sh', '-c', 'stty size; read line; sleep 1000'], {
      terminal: true,
      ports: { stdinPort: 5014, stdoutPort: 5014 },
    })
    const connection = await both.connection
    connection.write('typed\r')
    expect(await readUntil(connection, 'typed\r\n')).toContain('33 77\r\n')
    connection.destroy()
    expect(await added.wait()).toBe(128 + 1)
  })

  it('where nobody listens are an error that names the port, after which all is as before', async () => {
    const began = performance.now()
    await expect(pod.create('refused', ['true'], { ports: { stdoutPort: 5999 } })).rejects.toMatchObject({
      code: 'INTERNAL',
      message: expect.stringMatching(
        /^stdout: nobody listens on the host's port 5999: .*(ECONNRESET|ETIMEDOUT|no answer within 2 s)/,
      ),
    })
    // The time-out is 2 s; under emulation everything takes its time.
    expect(performance.now() - began).toBeLessThan(10_000)
    expect(await pod.output('refused', 'echo again')).toBe('again\n')
  })
})

describe.skipIf(cannotBoot() !== undefined)('a guest with agent.passfd_listener_port', () => {
  let guest: TestGuest
  let pod: GuestPod
  beforeAll(async () => {
    const append = [`agent.passfd_listener_port=${LISTENER}`]
    ;({ guest, pod } = await bootPod({ vsock: 'vhost-user', append }))
  })
  afterAll(() => guest?.stop())

  it('uses the connections that its host made, by the ports they came from', async () => {
    const [stdin, stdout] = [await connectToListener(guest), await connectToListener(guest)]
    const init = await pod.run('claimed', ['cat'], {
      ports: { stdinPort: stdin.port, stdoutPort: stdout.port },
    })
    stdin.socket.end('through')
    expect((await buffer(stdout.socket)).toString()).toBe('through')
    expect(await init.wait()).toBe(0)
    await expect(pod.create('unclaimed', ['true'], { ports: { stdinPort: 78 } })).rejects.toThrow(
      'the host has made no connection from its port 78',
    )
  })
})

/** A connection of the host to the guest's listener, and the port it comes from. */
async function connectToListener(guest: TestGuest): Promise<{ socket: Socket; port: number }> {
  const signal = AbortSignal.timeout(10_000)
  const socket = await connectSocket({ path: guestSocketIn(guest.folder), allowHalfOpen: true }, signal)
  return { socket, port: await hybridHandshake(socket, LISTENER, signal) }
}

async function readUntil(socket: Socket, text: string): Promise<string> {
  let read = ''
  for await (const chunk of socket.iterator({ destroyOnReturn: false })) {
    read += String(chunk)
    if (read.includes(text)) break
  }
  return read
}

/** What `seq` prints, as far as `length` bytes. */
function numbers(length: number): Buffer {
  let text = ''
  for (let number = 1; text.length < length; number++) text += `${number}\n`
  return Buffer.from(text.slice(0, length))
}

function digest(bytes: Buffer): string {
  return createHash('sha256').update(bytes).digest('hex')
}
