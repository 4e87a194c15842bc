import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { watch } from 'node:fs'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { buildAgent } from '../../src/build/agent.ts'
import { makeTemporaryFolder, removeTemporaryFolder } from '../../src/build/temporary-folder.ts'
import { ttrpcClient } from '../../src/rpc/ttrpc/client.ts'
import { endChild } from '../../test/support/processes.ts'
import { benchEnvironment, median, report } from '../support/figure.ts'
import { grpcPeer, type Peer } from '../support/grpc-peer.ts'

/** An empty unary call over a unix socket, one at a time, in both framings, against a bare grpc-js server. */
const WARM_UP_CALLS = 3000
const ROUNDS = 20
const CALLS_A_ROUND = 500

const agent = await buildAgent()
const node = join(agent, 'node')
const folder = makeTemporaryFolder(tmpdir())
const started: ChildProcess[] = []
try {
  await measure()
} finally {
  for (const server of started) await endChild(server, 'SIGKILL')
  removeTemporaryFolder(folder)
}

async function measure(): Promise<void> {
  const agentSocket = join(folder, 'agent.sock')
  const bareSocket = join(folder, 'bare.sock')
  await serve([join(agent, 'agent.cjs'), '--server-addr', `unix://${agentSocket}`], agentSocket)
  await serve([join(import.meta.dirname, '../support/rpc-bare-server.ts'), bareSocket], bareSocket)
  const bare = timedPeer(grpcPeer(bareSocket))
  const grpc = timedPeer(grpcPeer(agentSocket))
  const ttrpc = timedPeer(await ttrpcPeer(agentSocket))
  const peers = [bare, grpc, ttrpc]
  for (const peer of peers) await peer.warmUp()
  // Alternating, so that other load of the machine affects all of them.
  for (let round = 0; round < ROUNDS; round++) for (const peer of peers) await peer.measureRound()
  for (const peer of peers) peer.close()
  const floor = median(bare.times)
  report({ figure: 'empty call, gRPC', unit: 'us', value: median(grpc.times), floor, limit: 1.3 })
  report({ figure: 'empty call, ttRPC', unit: 'us', value: median(ttrpc.times), floor, limit: 0.6 })
}

/** Starts a server. Resolves when its socket exists. */
async function serve(args: readonly string[], socket: string): Promise<void> {
  const appeared = Promise.withResolvers<void>()
  const watcher = watch(folder, (_event, name) => {
    if (name !== null && socket.endsWith(name)) appeared.resolve()
  })
  const server = spawn(node, args, { env: benchEnvironment(), stdio: ['ignore', 'ignore', 'inherit'] })
  started.push(server)
  server.once('exit', (code) => appeared.reject(new Error(`${args.join(' ')} ended with ${code}`)))
  await appeared.promise
  watcher.close()
}

function timedPeer(peer: Peer) {
  const times: number[] = []
  return {
    times,
    close: () => peer.close(),
    warmUp: async () => {
      for (let call = 0; call < WARM_UP_CALLS; call++) await peer.call()
    },
    measureRound: async () => {
      for (let call = 0; call < CALLS_A_ROUND; call++) {
        const begin = performance.now()
        await peer.call()
        times.push((performance.now() - begin) * 1000)
      }
    },
  }
}

async function ttrpcPeer(path: string): Promise<Peer> {
  const socket = connect(path)
  await once(socket, 'connect')
  const client = ttrpcClient(socket)
  const empty = new Uint8Array(0)
  return { call: () => client.call('grpc.Health', 'Check', empty), close: () => client.close() }
}
