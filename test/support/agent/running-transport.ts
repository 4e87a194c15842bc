import { once } from 'node:events'
import { readFile } from 'node:fs/promises'
import { connect, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { startTransport, type Transport } from '../../../src/agent/transport/transport.ts'
import { makeTemporaryFolder, removeTemporaryFolder } from '../../../src/build/temporary-folder.ts'
import type { ListenAddress, VsockAddress } from '../../../src/os/sockets/sockets.ts'
import { Totals } from '../../../src/rpc/limits.ts'
import type { CheckCall, MethodTable, StreamTable } from '../../../src/rpc/method.ts'
import { type TtrpcClient, ttrpcClient } from '../../../src/rpc/ttrpc/client.ts'
import { FakeClock } from '../fakes/fake-clock.ts'
import { type LoggedLine, recordingLog } from '../fakes/recording-log.ts'
import { type GrpcClient, grpcClient } from '../rpc/grpc-client.ts'
import { nodeSockets } from './node-sockets.ts'

/** A transport on its own unix socket, with a fake clock. */
export interface RunningTransport {
  readonly path: string
  readonly transport: Transport
  readonly clock: FakeClock
  /** The transport's log. */
  readonly logged: readonly LoggedLine[]
  /** The server's end of every connection accepted so far. */
  readonly accepted: readonly Socket[]
  /** Connects a socket, which is closed at the end. */
  dial(): Promise<Socket>
  dialTtrpc(): Promise<TtrpcClient>
  dialGrpc(): GrpcClient
  close(): Promise<void>
}

export async function runTransport(
  methods: MethodTable,
  options: {
    /** The address to listen at; a unix socket by default. */
    readonly address?: ListenAddress
    /** Makes it look like a vsock transport whose connections come from this peer. */
    readonly peer?: VsockAddress
    readonly allowLoopback?: boolean
    readonly checkCall?: CheckCall
    readonly totals?: Totals
    readonly streams?: StreamTable
  } = {},
): Promise<RunningTransport> {
  const folder = makeTemporaryFolder(tmpdir())
  const path = join(folder, 'socket')
  const clock = new FakeClock()
  const { log, lines } = recordingLog()
  const sockets = nodeSockets({ ...options, vsockPath: path })
  const vsock: ListenAddress = { kind: 'vsock', cid: 0xffffffff, port: 1024 }
  const transport = await startTransport({
    sockets,
    address: options.address ?? (options.peer === undefined ? { kind: 'unix', path } : vsock),
    methods,
    ...(options.streams && { streams: options.streams }),
    readDescriptors: () => readFile(new URL('../../../src/gen/descriptors.binpb', import.meta.url)),
    checkCall: options.checkCall ?? (async () => undefined),
    totals: options.totals ?? new Totals(),
    log,
    allowLoopback: options.allowLoopback ?? false,
    broker: undefined,
    hangMs: 0,
    startTimer: (ms, expired) => clock.startTimer(ms, expired),
  })
  const dialled: { destroy(): void }[] = []
  const dial = async () => {
    const accepted = sockets.nextAccepted()
    const socket = transport.port === undefined ? connect(path) : connect(transport.port, '127.0.0.1')
    socket.on('error', () => {})
    dialled.push(socket)
    await Promise.all([once(socket, 'connect'), accepted])
    return socket
  }
  return {
    path,
    transport,
    clock,
    logged: lines,
    accepted: sockets.accepted,
    dial,
    dialTtrpc: async () => ttrpcClient(await dial()),
    dialGrpc: () => {
      const grpc = grpcClient(path)
      dialled.push({ destroy: () => grpc.client.close() })
      return grpc
    },
    close: async () => {
      for (const end of [...dialled, ...sockets.accepted]) end.destroy()
      await transport.stop()
      removeTemporaryFolder(folder)
    },
  }
}
