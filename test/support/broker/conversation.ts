import { expect } from 'vitest'
import type { TestBroker } from './broker.ts'
import { type BrokerClient, frameOf } from './client.ts'
import type { PlayedAgent, PlayedConnection } from './played-agent.ts'

export interface Conversation {
  readonly client: BrokerClient
  readonly connection: PlayedConnection
  readonly number: bigint
}

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

/** A new client's call proves that the broker has handled everything before it. */
export async function roundTrip(broker: TestBroker, agent: PlayedAgent): Promise<void> {
  const { client, connection, number } = await converse(broker, agent)
  connection.answer(number, frameOf(1, 'answer'))
  await client.frames.next()
}
