import { abortable } from '../../base/abort.ts'
import { inStep } from '../../base/step.ts'
import { type WaitProcessRequest, WaitProcessResponse } from '../../gen/agent.ts'
import type { Call } from '../../state/request.ts'
import type { RequestJournal } from '../../state/request-journal.ts'
import type { ProcessOwner, ProcessOwners } from './owner.ts'
import type { ContainerProcess } from './process.ts'

/** WaitProcess. Every waiter gets the status. Once an answer is delivered, the process is forgotten and its streams close. */
export async function waitProcess(
  {
    containers,
    requests,
  }: { readonly containers: Pick<ProcessOwners, 'waitFor'>; readonly requests: Pick<RequestJournal, 'take'> },
  { containerId, execId }: WaitProcessRequest,
  call: Call,
): Promise<WaitProcessResponse> {
  const { parts } = await containers.waitFor(containerId, 'INVALID_ARGUMENT', call)
  const process = await parts.processes.waitFor(execId, call)
  const status = await inStep('exit', execId, () => abortable(process.reported, call.signal))
  // Record the answer itself: a delivered answer to another waiter may remove the process first.
  requests.take(
    call,
    { exit: process.key, response: WaitProcessResponse.encode({ status }).finish() },
    { delivered: () => forgetProcess(parts, process), dropped: () => {} },
  )
  return { status }
}

/** Called once a caller has the exit status: later calls do not find the process. */
export function forgetProcess(
  parts: Pick<ProcessOwner, 'init' | 'processes' | 'record'>,
  process: ContainerProcess,
): void {
  parts.processes.forget(process)
  try {
    parts.record.dropProcess(process.key)
  } finally {
    process.stdio.forget()
    // The exit of the first process is a part of the container's state until the removal.
    if (process !== parts.init) process.forgetExit()
  }
}
