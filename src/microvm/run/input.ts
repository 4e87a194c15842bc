import type { Readable } from 'node:stream'
import type { Agent } from './container-session.ts'
import { gather } from './gather.ts'

/** Far below a message's limit, and enough to make the round trip cheap. */
const WRITE_BYTES = 1 << 20

/** Writes `source` to the container's stdin, one write in flight, and closes it at the source's end. */
export async function copyInput(
  agent: Agent,
  containerId: string,
  source: Readable,
  signal: AbortSignal,
): Promise<void> {
  const stream = { containerId, execId: containerId }
  for await (const piece of gather(source, WRITE_BYTES, signal)) {
    await agent.writeStdin({ ...stream, data: piece }, { signal })
  }
  signal.throwIfAborted()
  await agent.closeStdin(stream, { signal })
}
