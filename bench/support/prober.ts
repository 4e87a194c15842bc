import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { ttrpcClient } from '../../src/rpc/ttrpc/client.ts'

/**
 * Alternates between an agent's health check and a bare echo server, at the unix sockets of arguments 1 and 2, until
 * stdin ends. Prints the milliseconds of each call as JSON. Its own process is not slowed down by the load.
 */
const PAUSE_MS = 5

const [agentPath = '', barePath = ''] = process.argv.slice(2)
let isOver = false
process.stdin.once('end', () => {
  isOver = true
})
process.stdin.resume()

const client = ttrpcClient(await connected(agentPath))
const bare = await connected(barePath)
const times = { agent: [] as number[], bare: [] as number[] }
const empty = new Uint8Array(0)
while (!isOver) {
  const begin = performance.now()
  await client.call('grpc.Health', 'Check', empty)
  const middle = performance.now()
  bare.write('echo')
  await once(bare, 'data')
  times.agent.push(middle - begin)
  times.bare.push(performance.now() - middle)
  await sleep(PAUSE_MS)
}
process.stdout.write(JSON.stringify(times))
client.close()
bare.destroy()

async function connected(path: string): Promise<Socket> {
  const socket = connect(path)
  await once(socket, 'connect')
  return socket
}
