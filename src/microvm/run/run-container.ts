import { constants } from 'node:os'
import { setTimeout as delay } from 'node:timers/promises'
import { type Attachment, attach } from '../../client/container/attach.ts'
import {
  type Agent,
  createContainer,
  createSandbox,
  type NewContainer,
} from '../../client/container/container-session.ts'
import type { Timings } from './reporter.ts'

export interface ContainerRun extends Omit<Attachment, 'process'> {
  readonly container: NewContainer
  readonly timings: Timings
}

export interface ContainerEnd {
  readonly status: number
  /** Whether the kernel killed a process of it because memory ran out. */
  readonly isOutOfMemory: boolean
}

/** Creates the sandbox and the container, and runs it to its end, after which all its output was written. */
export async function runContainer(run: ContainerRun): Promise<ContainerEnd> {
  const { agent, container, signal, timings } = run
  const { id, hostname } = container
  // A container with the id of its sandbox would only hold namespaces: the agent does not watch its memory.
  await createSandbox(agent, { id: `${id}-sandbox`, hostname }, signal)
  await createContainer(agent, container, signal)
  timings.end('create')
  const over = new AbortController()
  const memory = watchMemory(agent, AbortSignal.any([signal, over.signal]))
  await agent.startContainer({ containerId: id }, { signal })
  timings.end('start')
  try {
    const status = await attach({ ...run, process: { containerId: id, execId: id } })
    // The exit arrives before the agent's last look at the memory.
    if (status === KILLED) await Promise.race([memory.event, delay(EVENT_MS)])
    return { status, isOutOfMemory: memory.hasEvent() }
  } finally {
    over.abort()
    timings.end('run')
  }
}

const KILLED = 128 + constants.signals.SIGKILL
/** How long after the end of the container its event may come. */
const EVENT_MS = 1000

/** Watches for the event of a container that runs out of memory, until `signal` fires. */
function watchMemory(agent: Agent, signal: AbortSignal) {
  let hasEvent = false
  const event = agent.getOOMEvent({}, { signal }).then(
    () => {
      hasEvent = true
    },
    // Whatever ends the call ends the others, too.
    () => {},
  )
  return { event, hasEvent: () => hasEvent }
}
