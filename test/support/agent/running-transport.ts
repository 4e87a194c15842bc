import { once } from 'node:events'
import { readFile } from 'node:fs/promises'
import { connect, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { startTransport, type Transport } from '../../../src/agent/transport/transport.ts'
import { buildVminit } from '../../../src/build/native.ts'
import { makeTemporaryFolder, removeTemporaryFolder } from '../../../src/build/temporary-folder.ts'
import type { DataSocket } from '../../../src/os/sockets/data-socket.ts'
import { type ListenAddress, linuxSockets } from '../../../src/os/sockets/sockets.ts'
import { linuxStreams } from '../../../src/os/streams/linux-streams.ts'
import { connectBroker } from '../../../src/os/supervisor/broker.ts'
import { Totals } from '../../../src/rpc/limits.ts'
import type { CheckCall, MethodTable, StreamTable } from '../../../src/rpc/method.ts'
import { type TtrpcClient, ttrpcClient } from '../../../src/rpc/ttrpc/client.ts'
import { TestBroker } from '../broker/broker.ts'
import { FakeClock } from '../fakes/fake-clock.ts'
import { type LoggedLine, recordingLog } from '../fakes/recording-log.ts'
import { type GrpcClient, grpcClient } from '../rpc/grpc-client.ts'
import { emptyStore } from './empty-store.ts'

/** A transport on its own unix socket behind a real connection broker. */
export interface RunningTransport {
  readonly path: string
  readonly transport: Transport
  /** The clock of the transport; the broker uses the real one. */
  readonly clock: FakeClock
  readonly logged: readonly LoggedLine[]
  readonly accepted: readonly (DataSocket | Socket)[]
  /** Connects a socket; the end of the test closes it. */
  dial(): Promise<Socket>
  dialTtrpc(): Promise<TtrpcClient>
  dialGrpc(): GrpcClient
  close(): Promise<void>
}

/** Cached, because checking whether vminit is built takes 0.1 s. */
let vminit: Promise<string> | undefined

export async function runTransport(
  methods: MethodTable,
  options: {
    readonly address?: ListenAddress
    readonly tcpPeer?: string
    readonly checkCall?: CheckCall
    readonly totals?: Totals
    readonly streams?: StreamTable
  } = {},
): Promise<RunningTransport> {
  const folder = makeTemporaryFolder(tmpdir())
  const path = join(folder, 'socket')
  const clock = new FakeClock()
  const { log, lines } = recordingLog()
  vminit ??= buildVminit()
  const program = await TestBroker.start(await vminit)
  const { native } = program
  const sockets = linuxSockets(native, emptyStore)
  const accepted: (DataSocket | Socket)[] = []
  const noted = <Accepted extends DataSocket | Socket>(socket: Accepted) => {
    accepted.push(socket)
    return socket
  }
  const control = program.announceAgent()
  const broker = connectBroker({ fd: control, native, streams: linuxStreams(native), clock, check: () => {} })
  const transport = await startTransport({
    sockets: {
      ...sockets,
      dataSocket: (fd) => noted(sockets.dataSocket(fd)),
      netSocket: async (fd) => noted(await sockets.netSocket(fd)),
    },
    address: options.address ?? { kind: 'unix', path },
    methods,
    ...(options.streams && { streams: options.streams }),
    readDescriptors: () => readFile(new URL('../../../src/gen/descriptors.binpb', import.meta.url)),
    checkCall: options.checkCall ?? (async () => undefined),
    totals: options.totals ?? new Totals(),
    log,
    allowLoopback: false,
    tcpPeer: options.tcpPeer ?? '',
    broker,
    hangMs: 0,
    boottimeNs: () => clock.boottimeNs(),
    startTimer: (ms, expired) => clock.startTimer(ms, expired),
  })
  const dialled: { destroy(): void }[] = []
  const dial = async () => {
    const socket = transport.port === undefined ? connect(path) : connect(transport.port, '127.0.0.1')
    socket.on('error', () => {})
    dialled.push(socket)
    await once(socket, 'connect')
    return socket
  }
  return {
    path,
    transport,
    clock,
    logged: lines,
    accepted,
    dial,
    dialTtrpc: async () => ttrpcClient(await dial()),
    dialGrpc: () => {
      const grpc = grpcClient(path)
      dialled.push({ destroy: () => grpc.client.close() })
      return grpc
    },
    close: async () => {
      for (const end of [...dialled, ...accepted]) end.destroy()
      await transport.stop()
      await Promise.allSettled([program.stop(), broker.failed])
      native.close(control)
      removeTemporaryFolder(folder)
    },
  }
}
