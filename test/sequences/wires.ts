import { once } from 'node:events'
import { connect } from 'node:net'
import { AgentServiceDefinition } from '../../src/gen/agent.ts'
import { HealthDefinition } from '../../src/gen/health.ts'
import { clientFor } from '../../src/rpc/client.ts'
import { type TtrpcClient, ttrpcClient } from '../../src/rpc/ttrpc/client.ts'
import type { Forward } from '../support/rpc/forward.ts'
import { grpcConnection } from '../support/rpc/grpc-client.ts'
import type { Wire } from './replay.ts'
import type { Sequence } from './sequence.ts'

export const FRAMINGS = ['ttrpc', 'grpc'] as const
export type Framing = (typeof FRAMINGS)[number]

/** The forward can break a connection of either framing and report its end. */
export async function dialWire(
  forward: Forward,
  framing: Framing,
  { hasHealthConnection }: Pick<Sequence, 'hasHealthConnection'>,
): Promise<Wire> {
  const dial = () => connectionsOf[framing](forward.path)
  const connection = await dial()
  const forHealth = hasHealthConnection ? await dial() : connection
  return {
    clients: {
      agent: clientFor(AgentServiceDefinition, connection),
      health: clientFor(HealthDefinition, forHealth),
    },
    ended: forward.ended,
    close: () => {
      forward.drop()
      connection.close()
      forHealth.close()
    },
  }
}

/** Dials an agent or a forward on a unix socket. The caller closes the connection. */
export const connectionsOf: Record<Framing, (path: string) => Promise<Pick<TtrpcClient, 'call' | 'close'>>> =
  {
    ttrpc: async (path) => {
      const socket = connect(path)
      await once(socket, 'connect')
      return ttrpcClient(socket)
    },
    grpc: async (path) => grpcConnection(path),
  }
