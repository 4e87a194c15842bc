import type { Session } from 'node:inspector/promises'
import { AgentError } from '../../base/errors.ts'
import {
  ReadProfileRequest_Kind as Kind,
  type ReadProfileRequest,
  type ReadProfileResponse,
} from '../../gen/microvm/agent/v1/introspection.ts'
import { guestMemory } from '../../handlers/cgroup/memory-reserve.ts'
import type { Os } from '../../os/os.ts'
import type { Fd } from '../../os/streams/streams.ts'
import type { Call } from '../../state/request.ts'
import { durationOf } from './request-fields.ts'

const MIB = 1024 * 1024

/** The most bytes of one answer. */
const CHUNK_BYTES = MIB

/** The most bytes of a profile. */
const MOST_BYTES = 128 * MIB

/** A profile that was not read for this long is dropped. */
const IDLE_MS = 60_000

/** For a snapshot V8 needs about as much memory as the heap has, and the file needs more. */
const SNAPSHOT_FACTOR = 4

interface Profile {
  readonly id: string
  /** A file in memory. */
  readonly fd: Fd
  readonly sizeBytes: number
  stopTimer: () => void
}

type State =
  | { readonly name: 'none' }
  | { readonly name: 'taking'; readonly id: string }
  | { readonly name: 'taken'; readonly profile: Profile }

/** Takes profiles of this process by an inspector session within it, which opens no port. */
export class Profiles {
  readonly #os: Pick<Os, 'clock' | 'files' | 'streams'>
  #state: State = { name: 'none' }
  #taken = 0

  constructor(os: Pick<Os, 'clock' | 'files' | 'streams'>) {
    this.#os = os
  }

  /**
   * Takes a profile, or reads the taken one. Throws FAILED_PRECONDITION while another is being taken or is unread,
   * NOT_FOUND for an unknown id, INVALID_ARGUMENT for a wrong request, RESOURCE_EXHAUSTED for too little memory.
   */
  async read(
    request: ReadProfileRequest,
    call: Pick<Call, 'signal' | 'takes'>,
  ): Promise<ReadProfileResponse> {
    const { kind, id, offset, discard } = request
    if (kind !== Kind.KIND_UNSPECIFIED && id !== '') {
      throw new AgentError('INVALID_ARGUMENT', `id: ${JSON.stringify(id)}, want none with a kind`)
    }
    const profile =
      kind === Kind.KIND_UNSPECIFIED ? this.#get(id) : await this.#take(kind, request.durationMs, call.signal)
    if (offset > BigInt(profile.sizeBytes)) {
      throw new AgentError('INVALID_ARGUMENT', `offset: ${offset}, want at most ${profile.sizeBytes}`)
    }
    const length = Math.min(CHUNK_BYTES, profile.sizeBytes - Number(offset))
    const data =
      length === 0 ? new Uint8Array(0) : this.#os.streams.readAt(profile.fd, Number(offset), length)
    if (discard) this.#drop(profile)
    else this.#keep(profile)
    // A caller that does not get the answer does not know the profile's id.
    if (kind !== Kind.KIND_UNSPECIFIED)
      call.takes({ delivered: () => {}, dropped: () => this.#drop(profile) })
    return { id: profile.id, sizeBytes: BigInt(profile.sizeBytes), data }
  }

  #get(id: string): Profile {
    if (this.#state.name === 'taken' && this.#state.profile.id === id) return this.#state.profile
    throw new AgentError('NOT_FOUND', `profile ${JSON.stringify(id)}: not found`)
  }

  async #take(kind: Kind, durationMs: number, signal: AbortSignal): Promise<Profile> {
    this.#refuseSecond()
    const take = takerOf(kind, this.#os, durationMs)
    this.#taken += 1
    const id = `${kind === Kind.CPU ? 'cpu' : 'heap'}-${this.#taken}`
    this.#state = { name: 'taking', id }
    let fd: Fd | undefined
    try {
      if (kind === Kind.HEAP) await this.#refuseWithoutMemory()
      const file = this.#os.streams.memoryFile('profile')
      fd = file
      let sizeBytes = 0
      await inSession((session) =>
        take(
          session,
          (text) => {
            const bytes = Buffer.from(text)
            if (sizeBytes + bytes.length > MOST_BYTES) return false
            this.#os.streams.writeAt(file, sizeBytes, bytes)
            sizeBytes += bytes.length
            return true
          },
          signal,
        ),
      )
      const profile = { id, fd, sizeBytes, stopTimer: () => {} }
      this.#state = { name: 'taken', profile }
      return profile
    } catch (error) {
      if (fd !== undefined) this.#os.streams.close(fd)
      this.#state = { name: 'none' }
      throw error
    }
  }

  #refuseSecond(): void {
    if (this.#state.name === 'taking') {
      throw new AgentError('FAILED_PRECONDITION', `profile ${this.#state.id}: is being taken`)
    }
    if (this.#state.name === 'taken') {
      const { id } = this.#state.profile
      throw new AgentError('FAILED_PRECONDITION', `profile ${id}: not discarded yet, want it read first`)
    }
  }

  async #refuseWithoutMemory(): Promise<void> {
    const available = Number((await guestMemory(this.#os.files)).available)
    const wanted = SNAPSHOT_FACTOR * process.memoryUsage().heapUsed
    if (available >= wanted) return
    const [have, want] = [available, wanted].map((bytes) => Math.round(bytes / MIB))
    throw new AgentError(
      'RESOURCE_EXHAUSTED',
      `memory: ${have} MiB available, want ${want} MiB for a snapshot`,
    )
  }

  #keep(profile: Profile): void {
    profile.stopTimer()
    profile.stopTimer = this.#os.clock.startTimer(IDLE_MS, () => this.#drop(profile))
  }

  #drop(profile: Profile): void {
    if (this.#state.name !== 'taken' || this.#state.profile !== profile) return
    profile.stopTimer()
    this.#os.streams.close(profile.fd)
    this.#state = { name: 'none' }
  }
}

/** Passes the pieces of a profile to `write`, which returns false when the profile is too large. */
type Take = (session: Session, write: (text: string) => boolean, signal: AbortSignal) => Promise<void>

/** Throws INVALID_ARGUMENT for an unknown kind, because a message may hold any number. */
function takerOf(kind: number, os: Pick<Os, 'clock'>, durationMs: number): Take {
  if (kind === Kind.CPU) return cpuProfile(os, durationOf(durationMs))
  if (kind === Kind.HEAP) return heapSnapshot()
  throw new AgentError('INVALID_ARGUMENT', `kind: ${kind}, want CPU or HEAP`)
}

function cpuProfile({ clock }: Pick<Os, 'clock'>, durationMs: number): Take {
  return async (session, write, signal) => {
    await session.post('Profiler.enable')
    await session.post('Profiler.start')
    await clock.sleep(durationMs, signal)
    const { profile } = await session.post('Profiler.stop')
    if (!write(JSON.stringify(profile))) throw tooLarge()
  }
}

function heapSnapshot(): Take {
  return async (session, write) => {
    let fits = true
    session.on('HeapProfiler.addHeapSnapshotChunk', ({ params: { chunk } }) => {
      fits &&= write(chunk)
    })
    await session.post('HeapProfiler.takeHeapSnapshot', {})
    if (!fits) throw tooLarge()
  }
}

function tooLarge(): AgentError {
  return new AgentError('RESOURCE_EXHAUSTED', `profile: larger than ${MOST_BYTES} bytes, the limit`)
}

async function inSession(use: (session: Session) => Promise<void>): Promise<void> {
  // Loaded at first use, because most agents never need it.
  const inspector = await import('node:inspector/promises')
  const session = new inspector.Session()
  session.connect()
  try {
    await use(session)
  } finally {
    session.disconnect()
  }
}
