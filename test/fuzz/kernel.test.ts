import { setImmediate as turn } from 'node:timers/promises'
import fc from 'fast-check'
import { describe } from 'vitest'
import { AgentError } from '../../src/base/errors.ts'
import { silentLogger } from '../../src/base/log.ts'
import { DeviceDrivers } from '../../src/hotplug/device-drivers.ts'
import { SeenEvents } from '../../src/hotplug/seen-events.ts'
import { linuxUevents } from '../../src/os/devices/uevents.ts'
import type { Native } from '../../src/os/native.ts'
import { linuxNetwork } from '../../src/os/network/linux-network.ts'
import { decodeMessages } from '../../src/os/network/netlink/message.ts'
import { RECORDED_UEVENTS } from '../fixtures/uevents.ts'
import { FakeOs } from '../support/fakes/fake-os.ts'
import { anyBytes, mutated } from '../support/fuzz/bytes.ts'
import { fuzz } from '../support/fuzz/fuzz.ts'
import { words } from '../support/fuzz/requests.ts'
import { realNative } from '../support/os/real-native.ts'

const EAGAIN = -11

const worded = fc
  .tuple(
    fc.constantFrom('add', 'remove', 'change', ''),
    words(),
    fc.array(fc.tuple(fc.constantFrom('SUBSYSTEM', 'DEVNAME', 'INTERFACE', 'MODALIAS', 'X'), words()), {
      maxLength: 5,
    }),
  )
  .map(
    ([action, path, pairs]) =>
      `${action}@${path}\0${pairs.map(([key, value]) => `${key}=${value}\0`).join('')}`,
  )

const RECORDED = Object.values(RECORDED_UEVENTS).map((text) => Buffer.from(text))

const received = fc.oneof(
  {
    weight: 4,
    arbitrary: fc
      .array(fc.oneof(mutated(RECORDED).map(String), worded), { maxLength: 4 })
      .map((events) => events.map((event) => `${event}\0\0`).join('')),
  },
  { weight: 1, arbitrary: fc.constantFrom(-105, -5, -12, -9, -24) },
)

describe('what the kernel sends', () => {
  fuzz('kernel/uevents', {
    share: 40,
    batch: 500,
    input: fc.array(received, { maxLength: 6 }),
    show: (list) => JSON.stringify(list),
    run: receiveEvents,
  })
})

/** Events must be delivered whole or not at all, few are kept, and drivers are requested only by alias. */
async function receiveEvents(list: readonly (string | number)[]): Promise<void> {
  const os = new FakeOs()
  const open = new Set<number>()
  const queue = [...list]
  let sockets = 0
  const uevents = linuxUevents({
    native: {
      ueventListen: () => {
        sockets += 1
        open.add(sockets)
        return sockets
      },
      ueventReceive: () => queue.shift() ?? EAGAIN,
    },
    streams: {
      readable: async (fd) => {
        if (queue.length === 0 || !open.has(fd)) await new Promise(() => {})
      },
      close: (fd) => void open.delete(fd),
    },
    clock: os.clock,
    log: silentLogger(),
  })
  let failure: Error | undefined
  os.tools.script((argv) => {
    const words = argv.slice(argv.indexOf('--') + 1)
    if (!argv.includes('--') || words.some((word) => word.includes('\0')))
      failure = new Error(`runs ${JSON.stringify(argv)}`)
    return {}
  })
  const drivers = new DeviceDrivers({ ...os, uevents }, silentLogger())
  const following = drivers.follow()
  const seen = new SeenEvents(uevents, ({ subsystem }) => subsystem === 'block')
  const listening = uevents.listen({
    event: (event) => {
      const texts = Object.values(event)
      if (event.action === '' || texts.some((text) => text.includes('\0')))
        failure = new Error(`told ${JSON.stringify(event)}`)
    },
    error: (error) => {
      if (error.code !== 'INTERNAL') failure = error
    },
  })
  for (let turns = 0; queue.length > 0; turns++) {
    if (turns === 1000) throw new Error(`${queue.length} of ${list.length} were not received`)
    await turn()
    os.clock.advance(20_000)
  }
  for (let turns = 0; turns < 3; turns++) await turn()
  if (seen.remembered.length > 8) throw new Error(`${seen.remembered.length} events are remembered`)
  for (const one of [following, seen, listening]) one.close()
  await drivers.idle()
  os.clock.advance(60_000)
  await turn()
  if (failure !== undefined) throw failure
  if (open.size > 0 || os.clock.sleeping > 0)
    throw new Error(`left: ${open.size} sockets, ${os.clock.sleeping} timers`)
}

const LISTS = ['links', 'addresses', 'routes', 'neighbors'] as const

const native = await realNative()
const datagrams = recordDatagrams(native)

/** The machine's answers with changes; the sequence numbers stay, because they match answers to requests. */
const answers = fc.record({
  list: fc.constantFrom(...LISTS),
  datagrams: fc.array(
    fc.oneof(
      { weight: 3, arbitrary: mutated(datagrams) },
      { weight: 1, arbitrary: fc.constantFrom(...datagrams) },
      { weight: 1, arbitrary: anyBytes(datagrams) },
    ),
    { maxLength: 4 },
  ),
  keepsNumbers: fc.boolean(),
})

describe('what rtnetlink answers', () => {
  fuzz('kernel/netlink', {
    share: 100,
    input: answers,
    show: ({ list, keepsNumbers, datagrams: all }) =>
      `${list} ${keepsNumbers} ${all.map((bytes) => bytes.toString('hex')).join(' ')}`,
    run: readList,
  })
})

function recordDatagrams(real: Native): readonly Buffer[] {
  const seen: Buffer[] = []
  const network = linuxNetwork({
    ...real,
    read: (fd, maxBytes) => {
      const datagram = real.read(fd, maxBytes)
      if (typeof datagram !== 'number') seen.push(Buffer.from(datagram))
      return datagram
    },
  })
  for (const list of LISTS) network[list]()
  return seen
}

/** A list must be read, or refused with an error; a failure must leave no socket open. */
function readList({
  list,
  datagrams: all,
  keepsNumbers,
}: {
  readonly list: (typeof LISTS)[number]
  readonly datagrams: readonly Buffer[]
  readonly keepsNumbers: boolean
}): void {
  const open = new Set<number>()
  let queue: Buffer[] = []
  let reads = 0
  const network = linuxNetwork({
    ...native,
    netlinkRoute: () => {
      open.add(7)
      return 7
    },
    write: (_fd: number, data: Uint8Array) => {
      const [request] = decodeMessages(Buffer.from(data))
      queue = all.map((datagram) => (keepsNumbers ? datagram : numbered(datagram, request?.sequence ?? 0)))
      return data.length
    },
    read: () => {
      reads += 1
      return queue.shift() ?? EAGAIN
    },
    close: (fd: number) => (open.delete(fd) ? 0 : -9),
  })
  try {
    network[list]()
  } catch (error) {
    if (!(error instanceof AgentError) || error.code !== 'INTERNAL') throw error
  }
  if (reads > 10 * (all.length + 1)) throw new Error(`${reads} reads of ${all.length} datagrams`)
}

/** Sets the sequence number in each message of the datagram. */
function numbered(datagram: Buffer, sequence: number): Buffer {
  const copy = Buffer.from(datagram)
  for (let offset = 0; offset + 16 <= copy.length; ) {
    copy.writeUInt32LE(sequence, offset + 8)
    offset += Math.max(16, (copy.readUInt32LE(offset) + 3) & ~3)
  }
  return copy
}
