import { dirname } from 'node:path'
import { createInterface } from 'node:readline'
import { neverAborted } from '../../../src/base/abort.ts'
import { silentLogger } from '../../../src/base/log.ts'
import { Interface, Route } from '../../../src/gen/types.ts'
import { type NetworkContext, networkQueues } from '../../../src/handlers/network/context.ts'
import { NetworkRecord } from '../../../src/handlers/network/network-record.ts'
import { updateInterface } from '../../../src/handlers/network/update-interface.ts'
import { updateRoutes } from '../../../src/handlers/network/update-routes.ts'
import { loadNative, type Native } from '../../../src/os/native.ts'
import { linuxNetwork } from '../../../src/os/network/linux-network.ts'
import { decodeMessages } from '../../../src/os/network/netlink/message.ts'
import { hotplugOf } from '../../../test/support/handlers/device/device-dependencies.ts'
import { realOs } from '../../../test/support/os/real-os.ts'

// node network-bare.ts ADDON INTERFACE ROUTES: sends netlink messages without the agent. `record` on stdin makes two calls
// and keeps their messages; `interface` and `routes` send those of one call again and print the microseconds.
const [, , addon = '', interfaceJson = '', routesJson = ''] = process.argv
const native = loadNative(dirname(addon))
const messages: Record<string, Buffer[]> = { interface: [], routes: [] }
const fd = native.netlinkRoute()

for await (const word of createInterface(process.stdin)) {
  if (word === 'record') await record()
  const begin = performance.now()
  if (word !== 'record') for (const message of messages[word] ?? []) exchange(message)
  process.stdout.write(`${(performance.now() - begin) * 1000}\n`)
}

async function record(): Promise<void> {
  const described = JSON.parse(interfaceJson)
  const wanted = Interface.fromPartial({ ...described, mtu: BigInt(described.mtu) })
  messages.interface = await messagesOf((network) => updateInterface(network, wanted, neverAborted))
  const routes: Route[] = JSON.parse(routesJson).map(Route.fromPartial)
  messages.routes = await messagesOf((network) => updateRoutes(network, routes, neverAborted))
}

async function messagesOf(call: (network: NetworkContext) => Promise<unknown>): Promise<Buffer[]> {
  const sent: Buffer[] = []
  const recording: Native = {
    ...native,
    write: (to, data) => {
      sent.push(...messagesIn(Buffer.from(data)))
      return native.write(to, data)
    },
  }
  const real = await realOs()
  const os = { ...real, network: linuxNetwork(recording) }
  const log = silentLogger()
  const hotplug = hotplugOf(real)
  await call({ os, log, record: new NetworkRecord(log), hotplug, queues: networkQueues() })
  return sent
}

/** Splits a datagram, because the bare loop sends one message at a time; the agent sends many in one datagram. */
function messagesIn(datagram: Buffer): readonly Buffer[] {
  const found: Buffer[] = []
  for (let offset = 0; offset < datagram.length; ) {
    const length = datagram.readUInt32LE(offset)
    found.push(datagram.subarray(offset, offset + length))
    offset += (length + 3) & ~3
  }
  return found
}

function exchange(message: Buffer): void {
  native.write(fd, message)
  for (;;) {
    const datagram = native.read(fd, 65536)
    if (typeof datagram === 'number') throw new Error(`read: ${datagram}`)
    const last = decodeMessages(datagram).at(-1)
    if (last?.type === 2 && last.payload.readInt32LE(0) !== 0) throw new Error('the kernel refused a message')
    if (last === undefined || last.type === 2 || last.type === 3) return
  }
}
