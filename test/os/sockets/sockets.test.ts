import { once } from 'node:events'
import { existsSync, writeFileSync } from 'node:fs'
import { connect, type Socket } from 'node:net'
import { join } from 'node:path'
import { beforeAll, describe, expect, it } from 'vitest'
import { unwrap } from '../../../src/os/errors.ts'
import type { Native } from '../../../src/os/native.ts'
import { SocketHandles } from '../../../src/os/sockets/socket-handles.ts'
import { linuxSockets, type Sockets } from '../../../src/os/sockets/sockets.ts'
import { linuxStreams } from '../../../src/os/streams/linux-streams.ts'
import { realNative } from '../../support/os/real-native.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

let native: Native
let sockets: Sockets
let folder: string
beforeAll(async () => {
  native = await realNative()
  sockets = linuxSockets(native, linuxStreams(native))
  folder = temporaryFolder()
})

function echo(socket: Socket): void {
  socket.pipe(socket)
}

async function exchange(client: Socket, text: string): Promise<string> {
  let received = ''
  client.setEncoding('utf8')
  client.on('data', (chunk) => {
    received += chunk
  })
  client.end(text)
  await once(client, 'end')
  return received
}

describe('listen', () => {
  it('listens at a path and removes it on close', async () => {
    const path = join(folder, 'agent.sock')
    const listener = await sockets.listen({ kind: 'unix', path }, echo)
    expect(await exchange(connect(path), 'hello')).toBe('hello')
    await listener.close()
    expect(existsSync(path)).toBe(false)
  })

  it('listens at a name in the abstract namespace', async () => {
    const name = `microvm-agent-test-${process.pid}`
    const listener = await sockets.listen({ kind: 'unix', path: `@${name}` }, echo)
    expect(await exchange(connect({ path: `\0${name}` }), 'hello')).toBe('hello')
    await listener.close()
  })

  it('listens at a port that the kernel chooses', async () => {
    const listener = await sockets.listen({ kind: 'tcp', host: '127.0.0.1', port: 0 }, echo)
    expect(await exchange(connect(listener.port ?? 0, '127.0.0.1'), 'hello')).toBe('hello')
    await listener.close()
  })

  it('replaces a socket without a listener', async () => {
    const path = join(folder, 'stale.sock')
    native.close(native.unixListen(path, 1))
    expect(existsSync(path)).toBe(true)
    const listener = await sockets.listen({ kind: 'unix', path }, echo)
    expect(await exchange(connect(path), 'hello')).toBe('hello')
    await listener.close()
  })

  it('leaves a socket with a listener, and a file that is not a socket', async () => {
    const path = join(folder, 'taken.sock')
    const first = await sockets.listen({ kind: 'unix', path }, echo)
    await expect(sockets.listen({ kind: 'unix', path }, echo)).rejects.toThrow(`listen ${path}: EADDRINUSE`)
    expect(await exchange(connect(path), 'hello')).toBe('hello')
    await first.close()
    const file = join(folder, 'file')
    writeFileSync(file, '')
    await expect(sockets.listen({ kind: 'unix', path: file }, echo)).rejects.toThrow('EADDRINUSE')
  })

  it('keeps the connections when it closes', async () => {
    const path = join(folder, 'closing.sock')
    const accepted = Promise.withResolvers<Socket>()
    const listener = await sockets.listen({ kind: 'unix', path }, accepted.resolve)
    const client = connect(path)
    const server = await accepted.promise
    await listener.close()
    echo(server)
    expect(await exchange(client, 'still there')).toBe('still there')
  })
})

describe('peerOf', () => {
  it('returns undefined for a unix socket', async () => {
    const path = join(folder, 'peer.sock')
    const accepted = Promise.withResolvers<Socket>()
    const listener = await sockets.listen({ kind: 'unix', path }, accepted.resolve)
    const client = connect(path)
    const server = await accepted.promise
    expect(sockets.peerOf(server)).toBeUndefined()
    server.destroy()
    expect(sockets.peerOf(server)).toBeUndefined()
    await once(client, 'close')
    await listener.close()
  })
})

describe('SocketHandles', () => {
  it('makes a net.Socket of a descriptor, whose directions end separately', async () => {
    const handles = new SocketHandles(native)
    const [one, other] = unwrap('open', 'a socket pair', native.socketPair())
    const [client, server] = [handles.socket(one), handles.socket(other)]
    server.on('end', () => server.end('after your end'))
    server.resume()
    expect(await exchange(client, 'question')).toBe('after your end')
    await Promise.all([client, server].map((socket) => socket.destroyed || once(socket, 'close')))
  })
})
