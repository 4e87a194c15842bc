import { once } from 'node:events'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { startTransport } from '../../../src/agent/transport/transport.ts'
import { silentLogger } from '../../../src/base/log.ts'
import { withTemporaryFolder } from '../../../src/build/temporary-folder.ts'
import { linuxClock } from '../../../src/os/clock.ts'
import { SocketHandles } from '../../../src/os/sockets/socket-handles.ts'
import { linuxSockets } from '../../../src/os/sockets/sockets.ts'
import { linuxStreams } from '../../../src/os/streams/linux-streams.ts'
import { connectBroker } from '../../../src/os/supervisor/broker.ts'
import { BrokerMessageKind } from '../../../src/os/supervisor/broker-messages.ts'
import { Totals } from '../../../src/rpc/limits.ts'
import { EnvelopeKind } from '../../../src/rpc/ttrpc/envelope.ts'
import { emptyStore } from '../../support/agent/empty-store.ts'
import { realNative } from '../../support/os/real-native.ts'
import { brokerData, requestFrame } from '../../support/rpc/broker-data.ts'
import { FakeBroker } from '../../support/rpc/fake-broker.ts'
import { echo, tableOf } from '../../support/rpc/fake-methods.ts'

// Prints whether Node's HTTP/2 is loaded: idle, after a ttRPC call, after an HTTP/2 preface.

const native = await realNative()
const streams = linuxStreams(native)
const fake = new FakeBroker(native)
const handles = new SocketHandles(native)
await withTemporaryFolder(tmpdir(), async (folder) => {
  const starting = startTransport({
    sockets: linuxSockets(native, emptyStore),
    address: { kind: 'unix', path: join(folder, 'agent.sock') },
    methods: tableOf({ 'test.Echo/Echo': echo }),
    checkCall: async () => undefined,
    readDescriptors: async () => new Uint8Array(0),
    totals: new Totals(),
    broker: connectBroker({ fd: fake.agentFd, native, streams, clock: linuxClock(native), check: () => {} }),
    hangMs: 0,
    allowLoopback: false,
    tcpPeer: '',
    boottimeNs: () => native.boottimeNs(),
    log: silentLogger(),
  })
  await fake.next()
  fake.send(BrokerMessageKind.READY, {})
  await starting
  const loaded = [isHttp2Loaded()]
  const data = brokerData(handles.socket(fake.connect(1n)))
  data.send(EnvelopeKind.request, 1n, requestFrame(1, 'Echo'))
  await data.next()
  loaded.push(isHttp2Loaded())
  const client = handles.socket(fake.connect(2n, Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n')))
  await once(client, 'data')
  loaded.push(isHttp2Loaded())
  process.stdout.write(JSON.stringify(loaded))
})
process.exit()

function isHttp2Loaded(): boolean {
  // `moduleLoadList` names every loaded built-in module; the type definitions lack it.
  const { moduleLoadList } = process as unknown as { readonly moduleLoadList: readonly string[] }
  return moduleLoadList.includes('NativeModule internal/http2/core')
}
