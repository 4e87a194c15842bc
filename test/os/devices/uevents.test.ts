import { constants } from 'node:os'
import { setImmediate as turn } from 'node:timers/promises'
import { beforeEach, describe, expect, it } from 'vitest'
import type { Uevents } from '../../../src/os/devices/uevents.ts'
import { linuxUevents } from '../../../src/os/devices/uevents.ts'
import { FakeClock } from '../../support/fakes/fake-clock.ts'
import { recordingLog } from '../../support/fakes/recording-log.ts'

const { EAGAIN, EIO, ENOBUFS, EMFILE } = constants.errno

describe('linuxUevents', () => {
  let clock: FakeClock
  let uevents: Uevents
  let log: ReturnType<typeof recordingLog>
  /** The open sockets; `opened` counts them. */
  let open: Set<number>
  let opened: number
  let refusal: number | undefined
  let arrived: PromiseWithResolvers<string | number>
  let behind: string[]
  let heard: string[]
  /** Closed sockets that were waited for; their numbers may belong to another file by then. */
  let usedClosed: number[]

  beforeEach(() => {
    clock = new FakeClock()
    log = recordingLog()
    open = new Set()
    opened = 0
    refusal = undefined
    heard = []
    usedClosed = []
    behind = []
    arrived = Promise.withResolvers()
    let next: string | number = 0
    uevents = linuxUevents({
      native: {
        ueventListen() {
          if (refusal !== undefined) return -refusal
          opened += 1
          open.add(opened)
          return opened
        },
        ueventReceive() {
          const given = next
          next = behind.shift() ?? -EAGAIN
          return given
        },
      },
      streams: {
        async readable(fd) {
          if (!open.has(fd)) usedClosed.push(fd)
          next = await arrived.promise
          arrived = Promise.withResolvers()
        },
        close(fd) {
          if (!open.delete(fd)) throw new Error(`fd ${fd} is not open`)
          arrived.promise.catch(() => {})
          arrived.reject(new Error(`fd ${fd} was closed`))
          arrived = Promise.withResolvers()
        },
      },
      clock,
      log: log.log,
    })
  })

  it('continues with the same socket when events were lost', async () => {
    listen()
    await receive(-ENOBUFS)
    await receive('add@/devices/x')
    expect(heard).toEqual(['receive uevents: ENOBUFS', 'add@/devices/x'])
    expect(opened).toBe(1)
  })

  it('passes on all received events before it waits again, unless the last listener is gone', async () => {
    const left = uevents.listen({
      event: ({ devicePath }) => {
        heard.push(devicePath)
        if (devicePath === '/c') left.close()
      },
      error: () => {},
    })
    behind = ['add@/b\0\0add@/c\0\0add@/d\0\0', 'add@/e\0\0']
    await receive('add@/a')
    expect(heard).toEqual(['/a', '/b', '/c'])
    expect([[...open], usedClosed]).toEqual([[], []])
  })

  it('opens another socket when one fails, and reports the error again once it is open', async () => {
    listen()
    listen()
    await receive(-EIO)
    expect([...open]).toEqual([])
    expect(heard.splice(0)).toEqual(Array(2).fill('receive uevents: EIO'))
    await pass(100)
    expect(heard.splice(0)).toEqual(Array(2).fill('receive uevents: EIO'))
    await receive('add@/devices/x')
    expect(heard).toEqual(Array(2).fill('add@/devices/x'))
    expect([...open]).toEqual([2])
    expect(log.lines.map(({ message }) => message)).toEqual([
      'uevents: socket failed, opening a new one',
      'listening to uevents again',
    ])
  })

  it('retries less and less often until a socket has received something', async () => {
    listen()
    refusal = EMFILE
    await receive(-EIO)
    for (const ms of [100, 200, 400]) await pass(ms)
    expect(log.lines.filter(({ fields }) => fields.error === 'listen to uevents: EMFILE')).toHaveLength(3)
    refusal = undefined
    await pass(799)
    expect(opened).toBe(1)
    await pass(1)
    expect(opened).toBe(2)
    await receive(-EIO)
    await pass(1599)
    expect(opened).toBe(2)
    await pass(1)
    await receive('add@/devices/x')
    await receive(-EIO)
    await pass(100)
    expect(opened).toBe(4)
  })

  it('does not wait for a new socket without listeners', async () => {
    const listening = listen()
    await receive(-EIO)
    listening.close()
    await turn()
    expect([clock.sleeping, open.size]).toEqual([0, 0])
    listen()
    await receive('add@/devices/x')
    expect(heard.at(-1)).toBe('add@/devices/x')
    expect(opened).toBe(2)
  })

  it('serves a listener that was added between two sockets', async () => {
    listen().close()
    await turn()
    const first = listen()
    await receive(-EIO)
    listen()
    first.close()
    heard.length = 0
    await pass(100)
    expect(heard).toEqual(['receive uevents: EIO'])
  })

  it('closes its socket with the last listener', async () => {
    const [first, second] = [listen(), listen()]
    first.close()
    await turn()
    expect(open.size).toBe(1)
    second.close()
    await turn()
    expect(open.size).toBe(0)
  })

  it('throws when the first socket cannot be opened', () => {
    refusal = EMFILE
    expect(() => listen()).toThrow('listen to uevents: EMFILE')
  })

  function listen() {
    return uevents.listen({
      event: ({ action, devicePath }) => heard.push(`${action}@${devicePath}`),
      error: ({ message }) => heard.push(message),
    })
  }

  /** Delivers an event or a failure, and lets the feed take it and wait for the next one. */
  async function receive(what: string | number) {
    arrived.resolve(typeof what === 'string' ? `${what}\0\0` : what)
    for (let turns = 0; turns < 3; turns++) await turn()
  }

  async function pass(ms: number) {
    clock.advance(ms)
    await turn()
  }
})
