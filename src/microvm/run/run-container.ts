import { type Attachment, attach } from '../../client/attach.ts'
import { createContainer, createSandbox, type NewContainer } from '../../client/container-session.ts'
import type { Timings } from './reporter.ts'

/** One run of a container on a connected agent. */
export interface ContainerRun extends Omit<Attachment, 'process'> {
  readonly container: NewContainer
  readonly timings: Timings
}

/** Creates the sandbox and the container, runs it and returns its exit status, after all its output was written. */
export async function runContainer(run: ContainerRun): Promise<number> {
  const { agent, container, signal, timings } = run
  const { id, hostname } = container
  await createSandbox(agent, { id, hostname }, signal)
  await createContainer(agent, container, signal)
  timings.end('create')
  await agent.startContainer({ containerId: id }, { signal })
  timings.end('start')
  try {
    return await attach({ ...run, process: { containerId: id, execId: id } })
  } finally {
    timings.end('run')
  }
}
