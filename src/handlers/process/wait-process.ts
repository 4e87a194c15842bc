import { abortable } from '../../base/abort.ts'
import { inStep } from '../../base/step.ts'
import { type WaitProcessRequest, WaitProcessResponse } from '../../gen/agent.ts'
import type { Call } from '../../state/request.ts'
import type { RequestJournal } from '../../state/request-journal.ts'
import type { ProcessOwner, ProcessOwners } from './owner.ts'
import type { ContainerProcess } from './process.ts'

/**
 * WaitProcess, also before the start. Every waiter gets the status. The process is forgotten, and its streams are
 * closed, once one of them has it.
 */
export async function waitProcess(
  {
    containers,
    requests,
  }: { readonly containers: Pick<ProcessOwners, 'waitFor'>; readonly requests: Pick<RequestJournal, 'take'> },
  { containerId, execId }: WaitProcessRequest,
  call: Call,
): Promise<WaitProcessResponse> {
  const { signal } = call
  const { parts } = await containers.waitFor(containerId, 'INVALID_ARGUMENT', signal)
  const process = await parts.processes.waitFor(execId, signal)
  const status = await inStep('exit', execId, () => abortable(process.reported, signal))
  // With the answer itself: another waiter may have it, and the process forgotten, when this request is sent again.
  requests.take(
    call,
    { exit: process.key, response: WaitProcessResponse.encode({ status }).finish() },
    { delivered: () => forgetProcess(parts, execId, process), dropped: () => {} },
  )
  return { status }
}

/** A caller has got the exit status of a process: it is not to be found any more. */
export function forgetProcess(
  parts: Pick<ProcessOwner, 'init' | 'processes' | 'record'>,
  execId: string,
  process: ContainerProcess,
): void {
  parts.processes.forget(execId, process)
  try {
    parts.record.dropProcess(process.key)
  } finally {
    void process.stdio.close()
    // That of the first process is a part of the container's state, until it is removed.
    if (process !== parts.init) process.forgetExit()
  }
}
