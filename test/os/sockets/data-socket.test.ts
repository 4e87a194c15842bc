import { once } from 'node:events'
import { fstatSync } from 'node:fs'
import type { Socket } from 'node:net'
import { beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { unwrap } from '../../../src/os/errors.ts'
import type { Native } from '../../../src/os/native.ts'
import { DataSocket, READ_BYTES } from '../../../src/os/sockets/data-socket.ts'
import { SocketHandles } from '../../../src/os/sockets/socket-handles.ts'
import { realNative } from '../../support/os/real-native.ts'
import { turns } from '../../support/rpc/fake-methods.ts'

const MIB = 1024 * 1024

const memory = Buffer.alloc(READ_BYTES)

let native: Native
let handles: SocketHandles
beforeAll(async () => {
  native = await realNative()
  handles = new SocketHandles(native)
})

describe('DataSocket', () => {
  let socket: DataSocket
  let client: Socket
  let fd: number
  let events: string[]
  beforeEach(() => {
    ;[socket, client, fd] = pair()
    events = []
    for (const name of ['end', 'finish', 'close'] as const) socket.on(name, () => events.push(name))
  })

  function pair() {
    const [one, other] = unwrap('open', 'a socket pair', native.socketPair())
    return [new DataSocket(native, one, memory), handles.socket(other), one] as const
  }

  it('reads all sockets into the same memory', async () => {
    const chunks: Buffer[] = []
    for (const text of ['first', 'then']) {
      const [socket, client] = pair()
      socket.on('data', (chunk) => chunks.push(chunk))
      socket.resume()
      client.end(text)
      await once(socket, 'close')
    }
    expect(chunks.map(String)).toEqual(['thent', 'then'])
  })

  it('reads nothing at its begin, and while it is paused', async () => {
    const texts: string[] = []
    socket.on('data', (chunk) => {
      texts.push(String(chunk))
      socket.pause()
    })
    client.write('first')
    await turns()
    expect(texts).toEqual([])
    socket.resume()
    await once(socket, 'data')
    client.write('then')
    await turns()
    expect(texts).toEqual(['first'])
    socket.resume()
    await once(socket, 'data')
    expect(texts).toEqual(['first', 'then'])
    socket.destroy()
  })

  it('sends what the kernel does not take at once when the other side reads, in order', async () => {
    const parts = Array.from({ length: 200 }, (_, index) => Buffer.alloc(10_000, index))
    let taken = 0
    for (const part of parts) socket.write(part, () => taken++)
    expect(socket).toMatchObject({ writableLength: 2_000_000, writableNeedDrain: true })
    await turns()
    expect(taken).toBeLessThan(200)
    const chunks: Buffer[] = []
    client.on('data', (chunk: Buffer) => chunks.push(chunk))
    await once(socket, 'drain')
    expect(socket).toMatchObject({ writableLength: 0, writableNeedDrain: false })
    expect(taken).toBe(200)
    socket.resume()
    client.end()
    await once(client, 'end')
    expect(Buffer.concat(chunks).equals(Buffer.concat(parts))).toBe(true)
  })

  it('reads on after its own end, which comes once all is sent, until the other side ends', async () => {
    socket.resume()
    socket.write(Buffer.alloc(MIB))
    socket.end()
    expect(socket.writable).toBe(false)
    await turns()
    expect(events).toEqual([])
    client.resume()
    await once(socket, 'finish')
    client.write('more')
    expect(String((await once(socket, 'data'))[0])).toBe('more')
    client.end()
    await once(socket, 'close')
    expect(events).toEqual(['finish', 'end', 'close'])
    expect(() => fstatSync(fd)).toThrow('EBADF')
  })

  it('finishes once, after what a listener has written before it ended the socket', async () => {
    const unsent: number[] = []
    socket.on('finish', () => unsent.push(socket.writableLength))
    socket.once('drain', () => {
      socket.write(Buffer.alloc(1))
      socket.end()
    })
    socket.write(Buffer.alloc(64 * 1024))
    client.end()
    client.resume()
    await once(socket, 'finish')
    socket.resume()
    await once(socket, 'close')
    expect(unsent).toEqual([0])
    expect(client.bytesRead).toBe(64 * 1024 + 1)
  })

  it('ends with the other side', async () => {
    socket.resume()
    client.end()
    client.resume()
    await once(socket, 'close')
    expect(events).toEqual(['end', 'finish', 'close'])
    await once(client, 'close')
  })

  it('sends what is written before it ends with the other side', async () => {
    socket.resume()
    socket.on('end', () => socket.write(Buffer.alloc(MIB)))
    client.end()
    await once(socket, 'end')
    let bytes = 0
    client.on('data', (chunk: Buffer) => {
      bytes += chunk.length
    })
    await once(client, 'close')
    expect(bytes).toBe(MIB)
  })

  it('tells of bytes that are never sent', async () => {
    let taken = 0
    socket.write(Buffer.alloc(MIB), () => taken++)
    await turns()
    expect(taken).toBe(0)
    socket.destroy()
    expect(socket).toMatchObject({ destroyed: true, writable: false, writableLength: 0 })
    socket.write(Buffer.alloc(1), () => taken++)
    await once(socket, 'close')
    expect(taken).toBe(2)
    expect(() => fstatSync(fd)).toThrow('EBADF')
  })

  it('tells that the other side has reset the connection', async () => {
    client.pause()
    socket.write(Buffer.alloc(MIB))
    await turns()
    const failed = once(socket, 'error')
    client.destroy()
    expect((await failed)[0]).toMatchObject({ code: expect.stringMatching('ECONNRESET|EPIPE') })
    expect(socket.destroyed).toBe(true)
  })

  it('reads all that came before the other side has reset the connection', async () => {
    let bytes = 0
    const [one, other] = unwrap('open', 'a socket pair', native.socketPair())
    const reset = new DataSocket(native, one, memory)
    reset.on('data', (chunk) => {
      bytes += chunk.length
    })
    const failed = once(reset, 'error')
    reset.write(Buffer.alloc(1))
    await turns()
    native.write(other, Buffer.alloc(100_000))
    native.close(other)
    reset.resume()
    expect((await failed)[0]).toMatchObject({ code: 'ECONNRESET' })
    expect(bytes).toBe(100_000)
  })
})
