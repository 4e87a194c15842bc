import { describe, expect, it } from 'vitest'
import type { Native } from '../../../src/os/native.ts'
import { decodeMessages, writeMessage } from '../../../src/os/network/netlink/message.ts'
import { RouteSocket } from '../../../src/os/network/netlink/route-socket.ts'
import { realNative } from '../../support/os/real-native.ts'

const ERROR = 2
const DONE = 3
const MULTI = 0x2
const INTERRUPTED = 0x10
const REQUEST = { type: 18, fixed: Buffer.alloc(16) }
const CHANGE = { request: REQUEST, flags: 0, call: 'set', subject: () => 'link 1' }

describe('RouteSocket', () => {
  it('skips the answers to an earlier request', () => {
    const { socket } = answering((sequence) => [
      reply(ERROR, 0, sequence - 1, -17),
      reply(ERROR, 0, sequence, 0),
    ])
    expect(() => socket.change(CHANGE)).not.toThrow()
  })

  it('reads a list again that changed during the read', () => {
    let lists = 0
    const { socket } = answering((sequence) => {
      lists += 1
      return [
        reply(16, MULTI | (lists === 1 ? INTERRUPTED : 0), sequence, lists),
        reply(DONE, MULTI, sequence, 0),
      ]
    })
    expect(socket.list(REQUEST, 'links').map(({ payload }) => payload.readInt32LE())).toEqual([2])
  })

  it('gives up on a list that keeps changing', () => {
    const { socket } = answering((sequence) => [reply(DONE, MULTI | INTERRUPTED, sequence, 0)])
    expect(() => socket.list(REQUEST, 'links')).toThrow('list links, which kept changing: EINTR')
  })

  it.each([ERROR, DONE])('reports the failure of a list (message %i)', (type) => {
    const { socket } = answering((sequence) => [reply(type, 0, sequence, -105)])
    expect(() => socket.list(REQUEST, 'routes')).toThrow('list routes: ENOBUFS')
  })

  it('opens another socket after one has failed', () => {
    const { socket, open } = answering(() => [])
    expect(() => socket.change(CHANGE)).toThrow('set by netlink: EAGAIN')
    expect(open).toEqual(new Set())
    expect(() => socket.change(CHANGE)).toThrow('EAGAIN')
  })

  it('makes several changes by one datagram and returns the failure of each', () => {
    const { socket, writes } = answering((sequence) => [reply(ERROR, 0, sequence, sequence === 2 ? -17 : 0)])
    const failures = socket.changeAll([CHANGE, { ...CHANGE, subject: () => 'link 2' }, CHANGE])
    expect(failures.map((failure) => failure?.message)).toEqual([undefined, 'set link 2: EEXIST', undefined])
    expect(writes).toHaveLength(1)
  })

  it('sends a batch of any size', () => {
    const { socket } = answering((sequence) => [reply(ERROR, 0, sequence, 0)])
    const batch = Array.from({ length: 1000 }, () => CHANGE)
    expect(socket.changeAll(batch)).toEqual(batch.map(() => undefined))
  })

  it('names the list whose answer is cut off, and opens another socket', () => {
    const { socket, open } = answering((sequence) => [reply(DONE, 0, sequence, 0).subarray(0, 20)])
    expect(() => socket.list(REQUEST, 'links')).toThrow('list by netlink: EBADMSG')
    expect(open).toEqual(new Set())
  })

  it('names the change whose answer has a number that is no errno', () => {
    const { socket } = answering((sequence) => [reply(ERROR, 0, sequence, 17)])
    expect(() => socket.change(CHANGE)).toThrow('set link 1: EBADMSG')
  })

  it('keeps its socket when a request fails', () => {
    const { socket, open } = answering((sequence) => [reply(ERROR, 0, sequence, -1)])
    expect(() => socket.change(CHANGE)).toThrow('set link 1: EPERM')
    expect(() => socket.change(CHANGE)).toThrow('set link 1: EPERM')
    expect(open).toEqual(new Set([100]))
  })

  it('works with the real kernel', async () => {
    const links = new RouteSocket(await realNative()).list(REQUEST, 'links')
    expect(links.length).toBeGreaterThan(0)
  })
})

function answering(answers: (sequence: number) => readonly Buffer[]) {
  const queue: Buffer[] = []
  const open = new Set<number>()
  const writes: number[] = []
  let lastFd = 99
  const native: Pick<Native, 'netlinkRoute' | 'read' | 'write' | 'close'> = {
    netlinkRoute: () => {
      lastFd += 1
      open.add(lastFd)
      return lastFd
    },
    write: (_fd, data) => {
      writes.push(data.length)
      for (const { sequence } of decodeMessages(Buffer.from(data))) queue.push(...answers(sequence))
      return data.length
    },
    read: () => queue.shift() ?? -11,
    close: (fd) => (open.delete(fd) ? 0 : -9),
  }
  return { socket: new RouteSocket(native as Native), open, writes }
}

function reply(type: number, flags: number, sequence: number, number: number): Buffer {
  const fixed = Buffer.alloc(20)
  fixed.writeInt32LE(number)
  const target = Buffer.alloc(64)
  return target.subarray(0, writeMessage(target, { type, flags, sequence, fixed, attributes: [] }))
}
