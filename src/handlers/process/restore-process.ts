import type { Logger } from '../../base/log.ts'
import type { ProcessState } from '../../gen/state/container.ts'
import type { Os } from '../../os/os.ts'
import type { RequestJournal } from '../../state/request-journal.ts'
import type { OutputReplay } from '../stdio/output-replay.ts'
import type { PortLinks } from '../stdio/ports/port-links.ts'
import { restoreStdio } from '../stdio/restore-stdio.ts'
import type { Stdio } from '../stdio/stdio.ts'
import { ContainerProcess } from './process.ts'

export interface RestoreProcessContext {
  readonly os: Pick<Os, 'clock' | 'streams' | 'descriptors' | 'exits'>
  readonly log: Logger
  readonly config: { readonly containerPipeSizeBytes: number }
  readonly requests: Pick<RequestJournal, 'isSentAgain' | 'settleAll'>
  readonly replay: OutputReplay
  readonly ports: PortLinks
}

export function restoreProcess(dependencies: RestoreProcessContext, process: ProcessState): ContainerProcess {
  const { os, log } = dependencies
  const { key, pid, beganNs } = process
  const stdio = restoreStreams(dependencies, process)
  return new ContainerProcess({ key, pid, exit: os.exits.adopt(pid, beganNs), exits: os.exits, stdio, log })
}

/** Restores the streams, then delivers or drops what requests had taken that are not sent again. */
export function restoreStreams(
  { os, config, requests, replay, ports }: RestoreProcessContext,
  { key, hasTerminal }: Pick<ProcessState, 'key' | 'hasTerminal'>,
): Stdio {
  const { containerPipeSizeBytes: pipeSizeBytes } = config
  const stdio = restoreStdio({ ...os, replay, ports }, { key, hasTerminal, pipeSizeBytes })
  requests.settleAll(stdio)
  return stdio
}
