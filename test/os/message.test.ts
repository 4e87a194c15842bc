import { afterEach, beforeAll, describe, expect, it } from 'vitest'
import { unwrap } from '../../src/os/errors.ts'
import type { Native } from '../../src/os/native.ts'
import type { Fd } from '../../src/os/streams/streams.ts'
import { realNative } from '../support/os/real-native.ts'
import { ownDescriptors } from '../support/processes.ts'

const [EAGAIN, EINVAL, EPIPE, EMSGSIZE] = [11, 22, 32, 90]

let native: Native
beforeAll(async () => {
  native = await realNative()
})

const opened = new Set<Fd>()
afterEach(() => {
  for (const fd of opened) native.close(fd)
  opened.clear()
})

function own<T extends readonly Fd[]>(fds: T): T {
  for (const fd of fds) opened.add(fd)
  return fds
}

const openPair = () => own(unwrap('open', 'a message pair', native.messagePair()))
const openPipe = () => own(unwrap('open', 'a pipe', native.pipe()))
const countDescriptors = () => ownDescriptors().length

function close(fd: Fd): void {
  opened.delete(fd)
  native.close(fd)
}

function receive(fd: Fd, maxBytes = 100) {
  const message = unwrap('receive at', 'a socket', native.recvMessage(fd, maxBytes))
  own(message.fds)
  return message
}

describe('a message', () => {
  it('arrives as it was sent, one at a time', () => {
    const [left, right] = openPair()
    expect(native.sendMessage(left, Buffer.from('one'))).toBe(3)
    native.sendMessage(left, Buffer.from('three'))
    expect(receive(right)).toEqual({ data: Buffer.from('one'), fds: [] })
    expect(receive(right)).toEqual({ data: Buffer.from('three'), fds: [] })
  })

  it('of 64 KiB arrives whole', () => {
    const [left, right] = openPair()
    const data = Buffer.alloc(65_536, 'x')
    native.sendMessage(left, data)
    expect(receive(right, 65_536).data.equals(data)).toBe(true)
  })

  it('carries a descriptor, which stays open at its sender', () => {
    const [left, right] = openPair()
    const [reading, writing] = openPipe()
    native.sendMessage(left, Buffer.from('pipe'), writing)
    const { data, fds } = receive(right)
    expect([data.toString(), fds.length]).toEqual(['pipe', 1])
    native.write(fds[0] ?? -1, Buffer.from('a'))
    native.write(writing, Buffer.from('b'))
    expect(native.read(reading, 100)).toEqual(Buffer.from('ab'))
  })

  it('that is too long is lost with its descriptor, which is closed', () => {
    const [left, right] = openPair()
    const [, writing] = openPipe()
    const before = countDescriptors()
    native.sendMessage(left, Buffer.from('12345'), writing)
    native.sendMessage(left, Buffer.from('next'))
    expect(native.recvMessage(right, 4)).toBe(-EMSGSIZE)
    expect(countDescriptors()).toBe(before)
    expect(receive(right, 4).data.toString()).toBe('next')
  })

  it('is awaited by a blocking socket only', () => {
    const [left, right] = openPair()
    native.setNonBlocking(right, true)
    expect(native.recvMessage(right, 100)).toBe(-EAGAIN)
    close(left)
    expect(receive(right)).toEqual({ data: Buffer.alloc(0), fds: [] })
    expect(native.sendMessage(right, Buffer.from('x'))).toBe(-EPIPE)
  })

  it('is received into at most 64 KiB', () => {
    const [, right] = openPair()
    expect([native.recvMessage(right, 65_537), native.recvMessage(right, -1)]).toEqual([-EINVAL, -EINVAL])
  })
})
