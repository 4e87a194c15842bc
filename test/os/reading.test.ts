import { afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { checkErrno, unwrap } from '../../src/os/errors.ts'
import type { Native } from '../../src/os/native.ts'
import type { Fd } from '../../src/os/streams/streams.ts'
import { realNative } from '../support/os/real-native.ts'
import { turns } from '../support/rpc/fake-methods.ts'

const ENOENT = 2
const EEXIST = 17
const EPERM = 1

describe('startReading', () => {
  let native: Native
  let one: Fd
  let other: Fd
  beforeAll(async () => {
    native = await realNative()
  })
  beforeEach(() => {
    ;[one, other] = unwrap('open', 'a socket pair', native.socketPair())
  })
  afterEach(() => {
    native.stopReading(one)
    native.close(one)
    native.close(other)
  })

  it('calls back as long as there is something to read, until it is stopped', async () => {
    const texts: string[] = []
    native.startReading(one, () => texts.push(String(unwrap('read', 'a socket', native.read(one, 2)))))
    native.write(other, Buffer.from('abcd'))
    await expect.poll(() => texts).toEqual(['ab', 'cd'])
    native.write(other, Buffer.from('ef'))
    await expect.poll(() => texts).toEqual(['ab', 'cd', 'ef'])
    expect(native.stopReading(one)).toBe(0)
    native.write(other, Buffer.from('gh'))
    await turns()
    expect(texts).toEqual(['ab', 'cd', 'ef'])
  })

  it('calls back at the end, and may be stopped and started by the callback', async () => {
    native.shutdown(other)
    let calls = 0
    const ready = () => {
      native.stopReading(one)
      calls += 1
      if (calls < 3) native.startReading(one, ready)
    }
    native.startReading(one, ready)
    await expect.poll(() => calls).toBe(3)
    await turns()
    expect(calls).toBe(3)
  })

  it('is refused for a descriptor that is read already, and for a file', () => {
    const file = checkErrno('make', 'a file', native.memoryFile('file'))
    const start = (fd: Fd) => native.startReading(fd, () => {})
    expect([start(one), start(one), start(file)]).toEqual([0, -EEXIST, -EPERM])
    expect([native.stopReading(one), native.stopReading(one)]).toEqual([0, -ENOENT])
    native.close(file)
  })
})
