import { once } from 'node:events'
import { existsSync, writeFileSync } from 'node:fs'
import { connect, createServer, type Socket } from 'node:net'
import { join } from 'node:path'
import { beforeAll, describe, expect, it } from 'vitest'
import { unwrap } from '../../../src/os/errors.ts'
import type { Native } from '../../../src/os/native.ts'
import { handleOf, SocketHandles } from '../../../src/os/sockets/socket-handles.ts'
import { type ListenAddress, linuxSockets, type Sockets } from '../../../src/os/sockets/sockets.ts'
import { emptyStore } from '../../support/agent/empty-store.ts'
import { realNative } from '../../support/os/real-native.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

let native: Native
let sockets: Sockets
let folder: string
beforeAll(async () => {
  native = await realNative()
  sockets = linuxSockets(native, emptyStore)
  folder = temporaryFolder()
})

function echo(socket: Socket): void {
  socket.pipe(socket)
}

/** Opens a socket, and serves its connections as the broker would. */
async function listen(own: Sockets, address: ListenAddress, onConnection: (socket: Socket) => void) {
  const listening = await own.open(address)
  const server = createServer({ allowHalfOpen: true }, onConnection).listen({
    fd: native.duplicate(listening.fd),
  })
  own.release(listening)
  await once(server, 'listening')
  return {
    port: listening.port,
    close: async () => {
      server.close()
      await own.removePath(listening)
    },
  }
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
    const listener = await listen(sockets, { kind: 'unix', path }, echo)
    expect(await exchange(connect(path), 'hello')).toBe('hello')
    await listener.close()
    expect(existsSync(path)).toBe(false)
  })

  it('listens at a name in the abstract namespace', async () => {
    const name = `microvm-agent-test-${process.pid}`
    const listener = await listen(sockets, { kind: 'unix', path: `@${name}` }, echo)
    expect(await exchange(connect({ path: `\0${name}` }), 'hello')).toBe('hello')
    await listener.close()
  })

  it('listens at a port that the kernel chooses', async () => {
    const listener = await listen(sockets, { kind: 'tcp', host: '127.0.0.1', port: 0 }, echo)
    expect(await exchange(connect(listener.port ?? 0, '127.0.0.1'), 'hello')).toBe('hello')
    await listener.close()
  })

  it('replaces a socket without a listener', async () => {
    const path = join(folder, 'stale.sock')
    native.close(native.unixListen(path, 1))
    expect(existsSync(path)).toBe(true)
    const listener = await listen(sockets, { kind: 'unix', path }, echo)
    expect(await exchange(connect(path), 'hello')).toBe('hello')
    await listener.close()
  })

  it('leaves a socket with a listener, and a file that is not a socket', async () => {
    const path = join(folder, 'taken.sock')
    const first = await listen(sockets, { kind: 'unix', path }, echo)
    await expect(listen(sockets, { kind: 'unix', path }, echo)).rejects.toThrow(`listen ${path}: EADDRINUSE`)
    expect(await exchange(connect(path), 'hello')).toBe('hello')
    await first.close()
    const file = join(folder, 'file')
    writeFileSync(file, '')
    await expect(listen(sockets, { kind: 'unix', path: file }, echo)).rejects.toThrow('EADDRINUSE')
  })
})

/** vminit's store as consecutive agents see it: each takes duplicates of its descriptors. */
function storeOfAgents() {
  const kept = new Map<string, number>()
  const agent = (): Sockets => {
    const inherited = new Map([...kept].map(([name, fd]) => [name, native.duplicate(fd)]))
    return linuxSockets(native, {
      ...emptyStore,
      take: (name) => {
        const fd = inherited.get(name)
        inherited.delete(name)
        return fd
      },
      names: () => [...inherited.keys()],
      store: async (name, fd) => {
        kept.set(name, native.duplicate(fd))
      },
    })
  }
  return {
    agent,
    close: () => {
      for (const fd of kept.values()) native.close(fd)
    },
  }
}

describe('listen below vminit', () => {
  it.each([
    ['a name', { kind: 'unix', path: `@microvm-agent-stored-${process.pid}` }],
    ['a port', { kind: 'tcp', host: '127.0.0.1', port: 0 }],
  ] as const)(
    'keeps %s while no agent listens, and connections wait for the next agent',
    async (_what, address) => {
      const { agent, close } = storeOfAgents()
      const first = await listen(agent(), address, echo)
      const port = first.port ?? 0
      await first.close()
      const own = address.kind === 'unix' ? address : { ...address, port }
      await expect(listen(sockets, own, echo)).rejects.toThrow('EADDRINUSE')
      const client =
        address.kind === 'unix' ? connect(`\0${address.path.slice(1)}`) : connect(port, '127.0.0.1')
      await once(client, 'connect')
      const answer = exchange(client, 'is somebody there')
      const second = await listen(agent(), address, echo)
      expect(second.port).toBe(first.port)
      expect(await answer).toBe('is somebody there')
      await second.close()
      close()
      await (await listen(sockets, own, echo)).close()
    },
  )

  it('refuses the socket of another address', async () => {
    const { agent, close } = storeOfAgents()
    const one = { kind: 'unix', path: join(folder, 'one.sock') } as const
    const first = await listen(agent(), one, echo)
    const other = { kind: 'vsock', cid: 3, port: 1 } as const
    await expect(listen(agent(), other, echo)).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
      message: 'listen vsock 3:1: vminit has the socket of another address, want a new start of vminit',
    })
    await first.close()
    close()
  })

  it('does not listen when vminit cannot keep the socket', async () => {
    const refusing = linuxSockets(native, {
      ...emptyStore,
      store: () => {
        throw new Error('vminit is gone')
      },
    })
    const path = join(folder, 'refused.sock')
    await expect(listen(refusing, { kind: 'unix', path }, echo)).rejects.toThrow('vminit is gone')
    expect(existsSync(path)).toBe(false)
  })
})

describe('SocketHandles', () => {
  // Node does not export the class (CONTRIBUTING.md): an upgrade may give a socket another handle.
  it('takes the class Pipe from a socket of node:net, with the members that it uses', () => {
    const [one, other] = unwrap('open', 'a socket pair', native.socketPair())
    native.close(other)
    const socket = new SocketHandles(native).socket(one)
    const handle = handleOf(socket)
    expect(handle?.constructor.name).toBe('Pipe')
    expect(handle).toMatchObject({
      fd: one,
      open: expect.any(Function),
    })
    socket.destroy()
  })

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
