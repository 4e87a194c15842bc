import { AgentError, messageOf } from '../../base/errors.ts'
import type { Os } from '../../os/os.ts'
import type { Fd } from '../../os/streams/streams.ts'
import { UnreadableState } from '../../state/state-store.ts'
import { InputStream } from './input-stream.ts'
import { checkJournal } from './journal-page.ts'
import { OutputStream } from './output-stream.ts'
import type { StreamName } from './port-connections.ts'
import { PortInput, PortOutput, type PortStream } from './port-streams.ts'
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
    return stdioOf({ stdin, stdout, stderr, resize: withoutTerminal }, stored)
  }
  const { host, ...relayed } = connectionOf(os, stored, 'stdout')
  if (master === undefined) {
    discard(os, stored, [['stdout-host', host], taken(stored, 'stdout-pipe'), taken(stored, 'stdout-data')])
    return stdioOf({ stdin, stdout: CLOSED_OUTPUT, stderr: CLOSED_OUTPUT, resize: () => {} }, stored)
  }
  const terminal = { os, master, stdin, stored }
  if (!relayed.isByPort) return terminalByCalls(terminal)
  const through = pipeOf(os, stored, 'stdout-pipe')
  return terminalByPort(terminal, relayedOutput(terminal, { ...relayed, through }))
}

interface StoredConnection extends Pick<PortStream, 'connection' | 'dialled' | 'port'> {
  readonly isByPort: boolean
  /** What is stored of it. */
  readonly host: Fd | undefined
}

/** A stream that has lost its connection still goes over its port. */
function connectionOf(
  os: RestoreOs,
  stored: StoredDescriptors,
  stream: StreamName,
  name: DescriptorName = `${stream}-host`,
): StoredConnection {
  const record = os.ports?.recordOf(stored.key, stream)
  let host = stored.take(name)
  if (host !== undefined && record?.state === 'losing') {
    discard(os, stored, [[name, host]])
    host = undefined
  }
  const { port = 0, state = 'attached' } = record ?? {}
  const isLost = state !== 'attached'
  return {
    connection: isLost ? undefined : host,
    dialled: isLost ? host : undefined,
    port,
    isByPort: isLost || host !== undefined,
    host,
  }
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
  const port = os.ports?.recordOf(stored.key, 'stdin')?.port
  const isSharedPort = port !== undefined && os.ports?.recordOf(stored.key, 'stdout')?.port === port
  const isShared = isSharedPort || stored.has('stdin-shared')
  const name = isShared ? 'stdin-shared' : 'stdin-host'
  const { host, isByPort, ...relayed } = connectionOf(os, stored, 'stdin', name)
  const end = stored.take('stdin-end')
  if (end !== undefined) os.streams.close(end)
  if (fd === undefined || !isByPort) {
    // The relay had ended when the agent died.
    if (host !== undefined) discard(os, stored, [[name, host], taken(stored, 'stdin-pipe')])
    void stored.remove('stdin-end')
    return new InputStream(os.streams, { fd, isTerminal, stored })
  }
  const through = pipeOf(os, stored, 'stdin-pipe')
  return new PortInput(os, { ...relayed, fd, through, stored }, { isShared, hasEnded: end !== undefined })
}

function restoreOutput(
  os: RestoreOs,
  stored: StoredDescriptors,
  name: 'stdout' | 'stderr',
  capacityBytes: number,
): ProcessOutput {
  const fd = stored.take(name)
  const { host, isByPort, ...relayed } = connectionOf(os, stored, name)
  if (fd === undefined) {
    discard(os, stored, [[`${name}-host`, host], taken(stored, `${name}-data`)])
    return CLOSED_OUTPUT
  }
  return isByPort
    ? new PortOutput(os, name, { ...relayed, fd, through: undefined, stored })
    : new OutputStream(os, { fd, capacityBytes, name, isTerminal: false, stored })
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
