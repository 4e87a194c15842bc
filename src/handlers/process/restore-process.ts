import type { Logger } from '../../base/log.ts'
import type { ProcessState } from '../../gen/state/container.ts'
import type { Os } from '../../os/os.ts'
import type { RequestJournal } from '../../state/request-journal.ts'
import type { OutputReplay } from '../stdio/output-replay.ts'
import { restoreStdio } from '../stdio/restore-stdio.ts'
import type { Stdio } from '../stdio/stdio.ts'
import { ContainerProcess } from './process.ts'

/** What going on with a process needs. */
export interface RestoreProcessDependencies {
  readonly os: Pick<Os, 'clock' | 'streams' | 'descriptors' | 'exits'>
  readonly log: Logger
  readonly config: { readonly containerPipeSizeBytes: number }
  readonly requests: Pick<RequestJournal, 'isSentAgain' | 'settleAll'>
  readonly replay: OutputReplay
}

/** A process that the previous agent made, with its streams. */
export function restoreProcess(
  dependencies: RestoreProcessDependencies,
  process: ProcessState,
): ContainerProcess {
  const { os, log } = dependencies
  const { key, pid, beganNs } = process
  const stdio = restoreStreams(dependencies, process)
  return new ContainerProcess({ key, pid, exit: os.exits.adopt(pid, beganNs), exits: os.exits, stdio, log })
}

/**
 * The streams of a process, where they were. What requests had taken or brought that are not sent again is delivered, or
 * dropped.
 */
export function restoreStreams(
  { os, config, requests, replay }: RestoreProcessDependencies,
  { key, hasTerminal }: Pick<ProcessState, 'key' | 'hasTerminal'>,
): Stdio {
  const { containerPipeSizeBytes: pipeSizeBytes } = config
  const stdio = restoreStdio({ ...os, replay }, { key, hasTerminal, pipeSizeBytes })
  requests.settleAll(stdio)
  return stdio
}
