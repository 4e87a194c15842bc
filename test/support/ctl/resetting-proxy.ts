import { once } from 'node:events'
import { type AddressInfo, connect, createServer } from 'node:net'
import type { Random } from '../kills/random.ts'

export interface ResettingProxy {
  readonly address: string
  readonly losses: () => number
  close(): void
}

/**
 * A proxy before an agent on TCP. Each connection ends after a number of bytes, in both directions together: the first one
 * between `least` and `most`, each later one after more, because an answer grows while a slow client dials again. The agent
 * sees a reset, as of a device that is gone, and the client an end.
 */
export async function resettingProxy(
  port: number,
  random: Random,
  { least, most }: { readonly least: number; readonly most: number },
): Promise<ResettingProxy> {
  let losses = 0
  const open = new Set<{ destroy(): void }>()
  const server = createServer((client) => {
    const agent = connect(port, '127.0.0.1')
    for (const socket of [client, agent]) {
      open.add(socket)
      socket.on('error', () => {}).once('close', () => open.delete(socket))
    }
    let left = Math.round((1 + losses) * (least + random() * (most - least)))
    const pass = (from: typeof client, to: typeof client) => {
      from.on('data', (chunk: Buffer) => {
        if (left <= 0) return
        const passed = chunk.subarray(0, left)
        left -= passed.length
        if (!to.write(passed)) {
          from.pause()
          to.once('drain', () => from.resume())
        }
        if (left > 0) return
        losses += 1
        // What was passed on arrives; the rest of the chunk does not.
        client.end(() => client.destroy())
        agent.resetAndDestroy()
      })
      from.once('end', () => to.end())
    }
    pass(client, agent)
    pass(agent, client)
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port: own } = server.address() as AddressInfo
  return {
    address: `tcp://127.0.0.1:${own}`,
    losses: () => losses,
    close: () => {
      server.close()
      for (const socket of open) socket.destroy()
    },
  }
}
