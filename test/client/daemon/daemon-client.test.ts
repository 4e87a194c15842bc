import { once } from 'node:events'
import { createServer, type IncomingHttpHeaders, type ServerHttp2Stream } from 'node:http2'
import { createServer as createNetServer, type Socket } from 'node:net'
import { join } from 'node:path'
import { afterEach, describe, expect, it } from 'vitest'
import { neverAborted } from '../../../src/base/abort.ts'
import { type DaemonClient, openDaemon } from '../../../src/client/daemon/daemon-client.ts'
import { runsInDaemon } from '../../../src/client/daemon/daemon-machines.ts'
import { Instance } from '../../../src/gen/microvm/instance/v1/instance.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

const closers: (() => void)[] = []
afterEach(() => {
  for (const close of closers.splice(0)) close()
})

/** A server that keeps the headers of its calls. Its `answer` may end the call or the connection. */
async function serve(answer: (stream: ServerHttp2Stream, number: number) => void, socket = newSocket()) {
  const headers: IncomingHttpHeaders[] = []
  const server = createServer()
  server.on('stream', (stream, received) => {
    stream.on('error', () => {})
    headers.push(received)
    stream.resume().once('end', () => answer(stream, headers.length))
  })
  await once(server.listen(socket), 'listening')
  closers.push(() => server.close())
  return { headers, server, socket }
}

function newSocket(): string {
  return join(temporaryFolder(), 'admin.sock')
}

function answerWith(stream: ServerHttp2Stream, status: number, message = ''): void {
  stream.respond({ ':status': 200, 'content-type': 'application/grpc' }, { waitForTrailers: true })
  stream.once('wantTrailers', () =>
    stream.sendTrailers({ 'grpc-status': `${status}`, 'grpc-message': message }),
  )
  const payload = Instance.encode(Instance.fromPartial({ properties: { key: 'web' } })).finish()
  const prefix = Buffer.alloc(5)
  prefix.writeUInt32BE(payload.length, 1)
  stream.end(Buffer.concat([prefix, payload]))
}

async function open(socket: string, signal: AbortSignal = neverAborted): Promise<DaemonClient> {
  const client = await openDaemon(socket, signal)
  closers.push(() => client.close())
  return client
}

describe('openDaemon', () => {
  it('gives each changing call a key of its own, and reads none', async () => {
    const { headers, socket } = await serve((stream) => answerWith(stream, 0))
    const { calls } = await open(socket)
    await calls.changeState({ key: 'web' })
    await calls.changeState({ key: 'web' })
    await calls.getInstance({ key: 'web' })
    const [one, other, read] = headers.map((each) => each['idempotency-key'])
    expect([one, other]).toEqual([
      expect.stringMatching(/^[0-9a-f-]{36}$/),
      expect.stringMatching(/^[0-9a-f-]{36}$/),
    ])
    expect(one).not.toBe(other)
    expect(read).toBeUndefined()
  })

  it('sends a call again with the same key when it has lost its connection', async () => {
    const { headers, socket } = await serve((stream, number) => {
      if (number === 1) stream.session?.destroy()
      else answerWith(stream, 0)
    })
    const { calls } = await open(socket)
    expect((await calls.plug({ key: 'web' }, { timeoutMs: 10_000 })).properties?.key).toBe('web')
    const keys = headers.map((each) => each['idempotency-key'])
    expect(keys).toHaveLength(2)
    expect(keys[0]).toBe(keys[1])
  })

  it('waits for the next daemon', async () => {
    const socket = newSocket()
    let next: Promise<unknown> | undefined
    const first = await serve((stream) => {
      first.server.close()
      stream.session?.destroy()
      next = once(first.server, 'close').then(() => serve((again) => answerWith(again, 0), socket))
    }, socket)
    const { calls } = await open(socket)
    expect((await calls.plug({ key: 'web' })).properties?.key).toBe('web')
    await next
  })

  it('does not send a call again that was answered with an error', async () => {
    // The connection between the daemon and another host.
    const { headers, socket } = await serve((stream) => answerWith(stream, 14, 'grpc: closed'))
    const { calls } = await open(socket)
    await expect(calls.plug({ key: 'web' }, { timeoutMs: 10_000 })).rejects.toMatchObject({
      code: 'UNAVAILABLE',
      message: 'grpc: closed',
    })
    expect(headers).toHaveLength(1)
  })

  it('gives up a daemon that does not come back within the time of the call', async () => {
    const { server, socket } = await serve((stream) => {
      server.close()
      stream.session?.destroy()
    })
    const { calls } = await open(socket)
    await expect(calls.plug({ key: 'web' }, { timeoutMs: 300 })).rejects.toMatchObject({
      code: 'UNAVAILABLE',
      message: expect.stringMatching(
        /^the daemon has ended during the call: daemon at .* does not run; start it/,
      ),
    })
  })

  it('says that a daemon does not answer, and asks it about no machine for long', async () => {
    const socket = newSocket()
    const accepted: Socket[] = []
    const server = createNetServer((each) => accepted.push(each))
    await once(server.listen(socket), 'listening')
    closers.push(() => server.close(), ...[() => accepted.map((each) => each.destroy())])
    await expect(openDaemon(socket, neverAborted, 50)).rejects.toMatchObject({
      code: 'UNAVAILABLE',
      message: `daemon at ${socket}: does not answer; it is stopped or hangs`,
    })
    const startedMs = performance.now()
    expect(await runsInDaemon(socket, 'web', neverAborted)).toBeUndefined()
    expect(performance.now() - startedMs).toBeLessThan(5000)
  })

  it('gives up at the signal', async () => {
    const abort = new AbortController()
    const { socket } = await serve(() => abort.abort(new Error('stopped')))
    const { calls } = await open(socket, abort.signal)
    await expect(calls.plug({ key: 'web' })).rejects.toThrow('stopped')
  })

  it.each([
    ['/etc/passwd', 'does not run; start it with ./microvm daemon'],
    ['/etc/passwd/admin.sock', 'does not run; start it'],
    [`/${'x'.repeat(120)}`, 'the path is too long for a socket, want at most 107 bytes'],
  ])('says why there is none at %s', async (path, text) => {
    await expect(openDaemon(path, neverAborted)).rejects.toMatchObject({
      code: 'UNAVAILABLE',
      message: expect.stringContaining(`daemon at ${path}: ${text}`),
    })
  })
})
