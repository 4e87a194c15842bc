import type { Logger } from '../../../base/log.ts'
import type { Os } from '../../../os/os.ts'
import type { Fd, RelayLink } from '../../../os/streams/streams.ts'
import type { EventLog } from '../../../state/event-log.ts'
import type { HostConnections } from '../host-connections.ts'
import type { StreamName } from '../port-connections.ts'
import type { StoredDescriptors } from '../stored-descriptors.ts'

export interface PortLinkContext {
  readonly os: Pick<Os, 'clock' | 'streams' | 'descriptors'>
  readonly log: Logger
  readonly events: Pick<EventLog, 'add'>
  readonly hostConnections: Pick<HostConnections, 'connect' | 'dialsHost' | 'arrivals' | 'hasNamed'>
  /** For how long a stream waits for another connection when its device is gone; 0: it ends. */
  readonly graceMs: number
  /** Whether readers acknowledge what they have, so that a stream goes on without a loss. */
  readonly resumes: boolean
  /** Which process has a key, undefined as long as no container has it. */
  readonly ownerOf: (key: string) => { readonly containerId: string; readonly execId: string } | undefined
}

export interface OpenStream {
  readonly stored: StoredDescriptors
  readonly stream: StreamName
  readonly port: number
  /** Undefined for a stream that has lost it. */
  readonly connection: Fd | undefined
  /** What was dialled for a stream that has lost its connection, when the previous agent died. */
  readonly dialled?: Fd | undefined
  /** Ends the stream as after the end of its connection. */
  readonly giveUp: () => void
}

/** Of a stream over a port, or of one that has lost its connection. */
export interface OpenLink extends RelayLink {
  /** Call it with how its relay has ended: from then on no connection is stored for the stream. */
  ending(errno: string | undefined): void
  /** Call it once all descriptors of the stream are closed. */
  over(): void
  /** Call it in place of `over` when the relay could not start. */
  abandon(): void
}
