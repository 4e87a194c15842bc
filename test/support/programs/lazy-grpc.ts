import { once } from 'node:events'
import { connect } from 'node:net'
import { startTransport } from '../../../src/agent/transport/transport.ts'
import { silentLogger } from '../../../src/base/log.ts'
import { Totals } from '../../../src/rpc/limits.ts'
import { GO_REQUEST } from '../../fixtures/ttrpc-frames.ts'
import { nodeSockets } from '../agent/node-sockets.ts'
import { echo, tableOf } from '../rpc/fake-methods.ts'

// Prints whether Node's HTTP/2 has been loaded: idle, after a ttRPC call, after an HTTP/2 preface.

const transport = await startTransport({
  sockets: nodeSockets(),
  address: { kind: 'tcp', host: '127.0.0.1', port: 0 },
  methods: tableOf({ 'test.Echo/Echo': echo }),
  checkCall: async () => undefined,
  readDescriptors: async () => new Uint8Array(0),
  totals: new Totals(),
  broker: undefined,
  hangMs: 0,
  allowLoopback: false,
  log: silentLogger(),
})
const loaded = [isHttp2Loaded()]
for (const bytes of [GO_REQUEST, 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n']) {
  const socket = connect(transport.port ?? 0, '127.0.0.1')
  socket.write(bytes)
  await once(socket, 'data')
  loaded.push(isHttp2Loaded())
  socket.destroy()
}
await transport.stop()
process.stdout.write(JSON.stringify(loaded))

function isHttp2Loaded(): boolean {
  // `moduleLoadList` names every built-in module loaded so far; the type definitions lack it.
  const { moduleLoadList } = process as unknown as { readonly moduleLoadList: readonly string[] }
  return moduleLoadList.includes('NativeModule internal/http2/core')
}
