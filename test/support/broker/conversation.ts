import { expect } from 'vitest'
import type { TestBroker } from './broker.ts'
import { type BrokerClient, frameOf } from './client.ts'
import type { PlayedAgent, PlayedConnection } from './played-agent.ts'

/** A client, its connection at the agent, and the number of its first request. */
export interface Conversation {
  readonly client: BrokerClient
  readonly connection: PlayedConnection
  readonly number: bigint
}

/** Connects a client whose first request the agent gets. */
export async function converse(
  broker: TestBroker,
  agent: PlayedAgent,
  request = frameOf(1, 'question'),
): Promise<Conversation> {
  const client = await broker.connect()
  await client.send(request)
  const connection = await agent.connections.next()
  const { number, frame } = await connection.request()
  expect(frame.equals(request)).toBe(true)
  return { client, connection, number }
}

/** Has a new client call the agent: then the broker has handled all that it got before. */
export async function roundTrip(broker: TestBroker, agent: PlayedAgent): Promise<void> {
  const { client, connection, number } = await converse(broker, agent)
  connection.answer(number, frameOf(1, 'answer'))
  await client.frames.next()
}
