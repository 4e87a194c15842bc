import { describe, expect, it } from 'vitest'
import type { Native } from '../../../src/os/native.ts'
import { linuxNetwork } from '../../../src/os/network/linux-network.ts'
import { decodeMessages, writeMessage } from '../../../src/os/network/netlink/message.ts'

const DONE = 3

describe('linuxNetwork', () => {
  it.each(['links', 'routes'] as const)('refuses %s that are cut off, and names the list', (list) => {
    expect(() => networkOfEntry(Buffer.of(2))[list]()).toThrow(`list ${list}: EBADMSG`)
  })
})

/** A network whose lists have one entry, with this payload. */
function networkOfEntry(fixed: Buffer) {
  const queue: Buffer[] = []
  const native: Pick<Native, 'netlinkRoute' | 'read' | 'write' | 'close'> = {
    netlinkRoute: () => 7,
    write: (_fd, data) => {
      const [{ sequence } = { sequence: 0 }] = decodeMessages(Buffer.from(data))
      queue.push(message(24, sequence, fixed), message(DONE, sequence, Buffer.alloc(4)))
      return data.length
    },
    read: () => queue.shift() ?? -11,
    close: () => 0,
  }
  return linuxNetwork(native as Native)
}

function message(type: number, sequence: number, fixed: Buffer): Buffer {
  const target = Buffer.alloc(64)
  return target.subarray(0, writeMessage(target, { type, flags: 2, sequence, fixed, attributes: [] }))
}
