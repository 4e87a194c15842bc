import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { connect } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { expect } from 'vitest'
import { AgentError } from '../../../src/base/errors.ts'
import { grpcConnection } from '../../../src/client/connection/grpc-connection.ts'
import { AgentServiceDefinition } from '../../../src/gen/agent.ts'
import { clientFor } from '../../../src/rpc/client.ts'
import { type TtrpcClient, ttrpcClient } from '../../../src/rpc/ttrpc/client.ts'
import { createContainerRequest, execProcessRequest } from '../containers/container-requests.ts'
import { podOf, RemoteProcess } from '../containers/pod.ts'
import type { AgentProcess } from '../host/agent-process.ts'

const REDIAL_MS = 20

/** Longer than any agent takes to follow another. */
const MOST_MS = 60_000

/**
 * A container's life by calls with keys, each over connections of its own: some are closed right after the request, some
 * answers are thrown away, and those by gRPC end with each agent. Every call must happen exactly once.
 */
export async function keyedLife(started: AgentProcess, root: string, id: string): Promise<void> {
  let turn = 0
  const call: TtrpcClient['call'] = async (service, method, payload) => {
    const metadata = { 'idempotency-key': randomUUID() }
    const send = async (client: TtrpcClient) => await client.call(service, method, payload, { metadata })
    turn += 1
    if (turn % 3 === 0) {
      const lost = await dial(started.path, 'ttrpc')
      const sent = send(lost).catch(() => {})
      await new Promise(setImmediate)
      lost.close()
      await sent
    }
    const first = await answered(started.path, turn % 2 === 0 ? 'ttrpc' : 'grpc', send)
    if (turn % 4 === 0) {
      const again = await answered(started.path, 'grpc', send)
      expect(Buffer.from(again)).toEqual(Buffer.from(first))
    }
    return first
  }
  const keyed = clientFor(AgentServiceDefinition, { call })
  const pod = podOf(keyed, root)
  const reads = (execId: string) => new RemoteProcess(started.agent, id, execId)
  await keyed.createContainer(createContainerRequest(id, root, ['sh', '-c', 'read line; exit 6']))
  await keyed.startContainer({ containerId: id })
  // The file outlives a run that fails.
  const counted = `runs-${randomUUID()}`
  const script = `echo ran >> /tmp/${counted}; cat; exit 4`
  await keyed.execProcess(execProcessRequest(id, 'e', ['sh', '-c', script]))
  const added = new RemoteProcess(keyed, id, 'e')
  const pieces = ['a', 'b', 'c', 'd'].map((letter, index) => letter.repeat(index === 1 ? 90_000 : 1000))
  const output = reads('e').readAll()
  // A failure before has its own error.
  output.catch(() => {})
  for (const piece of pieces) await added.write(piece)
  await added.closeStdin()
  expect((await output).toString()).toBe(pieces.join(''))
  expect(await added.wait()).toBe(4)
  await keyed.pauseContainer({ containerId: id })
  await keyed.resumeContainer({ containerId: id })
  const init = new RemoteProcess(keyed, id)
  await init.write('end\n')
  expect(await init.wait()).toBe(6)
  await pod.remove(id)
  expect(readFileSync(`${root}/tmp/${counted}`, 'utf8')).toBe('ran\n')
}

/** Repeats until an answer comes, over a new connection each time. */
async function answered(
  path: string,
  framing: 'ttrpc' | 'grpc',
  send: (client: TtrpcClient) => Promise<Uint8Array>,
): Promise<Uint8Array> {
  for (const until = performance.now() + MOST_MS; ; ) {
    let client: TtrpcClient | undefined
    try {
      client = await dial(path, framing)
      return await send(client)
    } catch (error) {
      const isLost = !(error instanceof AgentError) || error.code === 'UNAVAILABLE'
      if (!isLost || performance.now() > until) throw error
      await sleep(REDIAL_MS)
    } finally {
      client?.close()
    }
  }
}

async function dial(path: string, framing: 'ttrpc' | 'grpc'): Promise<TtrpcClient> {
  const socket = connect(path)
  await once(socket, 'connect')
  return framing === 'ttrpc' ? ttrpcClient(socket) : grpcConnection(socket)
}
