import { Duplex } from 'node:stream'
import {
  ConnectAgentRequest,
  ConnectAgentResponse,
  InstanceServiceDefinition,
} from '../../gen/microvm/instance/v1/instance.ts'
import type { StreamCall } from '../connection/grpc-connection.ts'
import { type DaemonClient, openDaemon } from './daemon-client.ts'

/** How many hosts have passed a caller on, and who owns the machine that it wants. */
export type PassedCaller = Pick<ConnectAgentRequest, 'hosts' | 'tenant'>

/**
 * Connects to the agent of an instance by the daemon at `socket`. A daemon or an instance that is not there shows at the
 * first read.
 */
export async function connectMachine(socket: string, key: string, signal: AbortSignal): Promise<Duplex> {
  return await agentStream(await openDaemon(socket, signal), key)
}

/** The same by a connection, which it then owns. */
export async function agentStream(
  daemon: Pick<DaemonClient, 'stream' | 'close'>,
  key: string,
  passed: PassedCaller = { hosts: 0, tenant: '' },
): Promise<Duplex> {
  const { fullName, methods } = InstanceServiceDefinition
  const call = daemon.stream(fullName, methods.connectAgent.name)
  const first = ConnectAgentRequest.encode({ key, data: new Uint8Array(), ...passed }).finish()
  await call.send(first).catch((error) => {
    daemon.close()
    throw error
  })
  return new Duplex({
    read() {
      nextData(call.answers).then(
        (data) => this.push(data),
        (error) => this.destroy(error),
      )
    },
    write(chunk: Buffer, _encoding, done) {
      sendAll(call, chunk).then(() => done(), done)
    },
    final(done) {
      call.end()
      done()
    },
    destroy(error, done) {
      call.cancel()
      daemon.close()
      done(error)
    },
  })
}

async function sendAll(call: StreamCall, chunk: Buffer): Promise<void> {
  for (const data of pieces(chunk))
    await call.send(ConnectAgentRequest.encode({ key: '', data, hosts: 0, tenant: '' }).finish())
}

/** The daemon takes no larger message in a stream of bytes. */
const PIECE_BYTES = 1 << 16

/** Cuts bytes into what the daemon takes as one message of a stream. */
export function* pieces(data: Uint8Array): Generator<Uint8Array, void, undefined> {
  for (let at = 0; at < data.length; at += PIECE_BYTES) yield data.subarray(at, at + PIECE_BYTES)
}

/** Skips empty answers, because an empty chunk would end the reading. Returns null at the end. */
async function nextData(answers: AsyncGenerator<Uint8Array, void, undefined>): Promise<Uint8Array | null> {
  for (;;) {
    const { value } = await answers.next()
    if (value === undefined) return null
    const { data } = ConnectAgentResponse.decode(value)
    if (data.length > 0) return data
  }
}
