import { AgentError, messageOf } from '../../base/errors.ts'
import type { Os } from '../../os/os.ts'
import type { Fd } from '../../os/streams/streams.ts'
import { UnreadableState } from '../../state/state-store.ts'
import { InputStream } from './input-stream.ts'
import { checkJournal } from './journal-page.ts'
import { OutputStream } from './output-stream.ts'
import { PortInput, PortOutput } from './port-streams.ts'
import type { ProcessInput, ProcessOutput, StreamOs } from './process-streams.ts'
import { type Stdio, stdioOf, withoutTerminal } from './stdio.ts'
import { type DescriptorName, StoredDescriptors } from './stored-descriptors.ts'
import { relayedOutput, terminalByCalls, terminalByPort } from './terminal-stdio.ts'

export interface RestoreOs extends StreamOs, Pick<Os, 'descriptors'> {}

export interface StoredProcess {
  readonly key: string
  readonly hasTerminal: boolean
  /** The configured size of its pipes, 0 for none. */
  readonly pipeSizeBytes: number
}

/**
 * Call it before requests are served, then settle each entry of {@link Stdio.taken} whose request is not sent again.
 * Throws UnreadableState for an unreadable journal, which is dropped, so that a second call restores the rest.
 */
export function restoreStdio(os: RestoreOs, process: StoredProcess): Stdio {
  const stored = new StoredDescriptors(os.descriptors, process.key)
  const { key, hasTerminal: isTerminal, pipeSizeBytes: capacityBytes } = process
  for (const name of JOURNALS) refuseDamaged(os, stored, key, name)
  const master = isTerminal ? stored.take('master') : undefined
  const stdin = restoreInput(os, stored, isTerminal)
  if (!isTerminal) {
    const stdout = restoreOutput(os, stored, 'stdout', capacityBytes)
    const stderr = restoreOutput(os, stored, 'stderr', capacityBytes)
    return stdioOf({ stdin, stdout, stderr, resize: withoutTerminal })
  }
  const connection = stored.take('stdout-host')
  if (master === undefined) {
    discard(os, stored, [
      ['stdout-host', connection],
      taken(stored, 'stdout-pipe'),
      taken(stored, 'stdout-data'),
    ])
    return stdioOf({ stdin, stdout: CLOSED_OUTPUT, stderr: CLOSED_OUTPUT, resize: () => {} })
  }
  const terminal = { os, master, stdin, stored }
  if (connection === undefined) return terminalByCalls(terminal)
  const through = pipeOf(os, stored, 'stdout-pipe')
  return terminalByPort(terminal, relayedOutput(terminal, connection, through))
}

/** Call it before {@link restoreStdio} for a half-made process. Returns false when the terminal was not stored. */
export function completeTerminal(os: RestoreOs & Pick<Os, 'consoles'>, key: string): boolean {
  const stored = new StoredDescriptors(os.descriptors, key)
  const console = stored.take('console')
  const before = stored.take('master')
  const master = before ?? (console && os.consoles.receive(console))
  if (console !== undefined) {
    os.streams.close(console)
    void stored.remove('console')
  }
  if (master === undefined) return false
  stored.handOver('master', master, before !== undefined)
  if (!stored.has('stdin')) stored.handOver('stdin', os.streams.duplicate(master), false)
  return true
}

const JOURNALS = ['stdin-data', 'stdout-data', 'stderr-data'] as const

/** Runs before any stream is restored, because restoring has no undo. */
function refuseDamaged(os: RestoreOs, stored: StoredDescriptors, key: string, name: DescriptorName): void {
  const fd = stored.take(name)
  if (fd === undefined) return
  try {
    checkJournal(os.streams, fd)
  } catch (error) {
    discard(os, stored, [[name, fd]])
    throw new UnreadableState('INTERNAL', `${key}-${name}: ${messageOf(error)}`, { cause: error })
  }
  stored.handOver(name, fd, true)
}

function restoreInput(os: RestoreOs, stored: StoredDescriptors, isTerminal: boolean): ProcessInput {
  const fd = stored.take('stdin')
  const [host, shared, end] = [
    stored.take('stdin-host'),
    stored.take('stdin-shared'),
    stored.take('stdin-end'),
  ]
  const connection = host ?? shared
  if (end !== undefined) os.streams.close(end)
  if (fd === undefined || connection === undefined) {
    // The relay had ended when the agent died.
    if (connection !== undefined) {
      discard(os, stored, [['stdin-host', host], ['stdin-shared', shared], taken(stored, 'stdin-pipe')])
    }
    void stored.remove('stdin-end')
    return new InputStream(os.streams, { fd, isTerminal, stored })
  }
  const through = pipeOf(os, stored, 'stdin-pipe')
  const how = { isShared: shared !== undefined, hasEnded: end !== undefined }
  return new PortInput(os.streams, { connection, fd, through, stored }, how)
}

function restoreOutput(
  os: RestoreOs,
  stored: StoredDescriptors,
  name: 'stdout' | 'stderr',
  capacityBytes: number,
): ProcessOutput {
  const fd = stored.take(name)
  const connection = stored.take(`${name}-host`)
  if (fd === undefined) {
    discard(os, stored, [[`${name}-host`, connection], taken(stored, `${name}-data`)])
    return CLOSED_OUTPUT
  }
  return connection === undefined
    ? new OutputStream(os, { fd, capacityBytes, name, isTerminal: false, stored })
    : new PortOutput(os, name, { connection, fd, through: undefined, stored })
}

/** The previous agent may have died before it stored the relay's pipe. */
function pipeOf(os: RestoreOs, stored: StoredDescriptors, name: 'stdin-pipe' | 'stdout-pipe'): Fd {
  const restored = stored.take(name)
  if (restored !== undefined) return restored
  const pipe = os.streams.wholePipe()
  stored.put(name, pipe)
  return pipe
}

type Taken = readonly [DescriptorName, Fd | undefined]

function taken(stored: StoredDescriptors, name: DescriptorName): Taken {
  return [name, stored.take(name)]
}

function discard(os: RestoreOs, stored: StoredDescriptors, left: readonly Taken[]): void {
  for (const [name, fd] of left) {
    if (fd === undefined) continue
    os.streams.close(fd)
    void stored.remove(name)
  }
}

const CLOSED_OUTPUT: ProcessOutput = {
  tail: undefined,
  taken: [],
  read: async () => {
    throw new AgentError('INTERNAL', 'cannot get stream reader', { fault: 'caller' })
  },
  unreadMs: () => 0,
  processEnded: () => {},
  close: async () => {},
}
