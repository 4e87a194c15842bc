import { connect, createServer, type Socket } from 'node:net'
import { join } from 'node:path'
import { temporaryFolder } from '../temporary-folder.ts'

/**
 * A proxy before an agent. When one side of a connection has sent more than its limit, the proxy ends the connection, or
 * calls `atLimit` once and continues.
 */
export async function cuttingProxy(
  agentPath: string,
  {
    atLimit,
    fromAgent = Number.POSITIVE_INFINITY,
    fromClient = Number.POSITIVE_INFINITY,
  }: { readonly fromAgent?: number; readonly fromClient?: number; readonly atLimit?: () => void } = {},
): Promise<{ readonly address: string; close(): void }> {
  const path = join(temporaryFolder(), 'proxy.sock')
  const open = new Set<Socket>()
  const server = createServer((client) => {
    const agent = connect(agentPath)
    const end = () => {
      client.destroy()
      agent.destroy()
    }
    for (const socket of [client, agent]) {
      open.add(socket)
      socket.on('error', () => {}).once('close', end)
    }
    client.pipe(agent).pipe(client)
    let isReached = false
    const look = () => {
      if (isReached || (client.bytesRead <= fromClient && agent.bytesRead <= fromAgent)) return
      isReached = true
      if (atLimit === undefined) end()
      else atLimit()
    }
    for (const socket of [client, agent]) socket.on('data', look)
  })
  await new Promise<void>((resolve) => server.listen(path, resolve))
  return {
    address: `unix://${path}`,
    close: () => {
      server.close()
      for (const socket of open) socket.destroy()
    },
  }
}
