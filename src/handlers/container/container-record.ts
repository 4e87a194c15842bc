import type { Hook } from '../../gen/oci.ts'
import {
  ContainerPayload,
  type HangupState,
  ContainerPayload_Phase as Phase,
  type ProcessState,
  type Sysctl,
} from '../../gen/state/container.ts'
import type { ContainerSpec } from '../../oci/container-spec.ts'
import type { RequestJournal } from '../../state/request-journal.ts'
import { KINDS, type StateStore, UnreadableState } from '../../state/state-store.ts'
import type { ContainerNames } from './container-names.ts'

export { Phase }

type Fields = Omit<ContainerPayload, 'schemaVersion'>

/** Files: `containers/KEY/record`, `containers/KEY/spec`, and `containers/KEY/execs/KEY` of each added process. */
const FOLDER = 'containers'
const EXECS = 'execs'

/** Keeps the answer to a request once the record no longer tells it. */
export type Answers = Pick<RequestJournal, 'keep'>

/** What the records of all containers need. */
export interface Records {
  readonly state: StateStore
  readonly answers: Answers
  readonly names: ContainerNames
}

/** What is saved of one container for the next agent (proto/state/container.proto). */
export class ContainerRecord {
  readonly #state: StateStore
  readonly #answers: Answers
  readonly #names: ContainerNames
  readonly #folder: string
  #fields: Fields
  /** Set when the record is removed. */
  #lastId: string | undefined
  #spec: ContainerSpec['spec'] | undefined
  /** Added processes by key. Each has a file of its own, so that a change rewrites only one. */
  readonly #execs: Map<string, ProcessState>

  constructor(
    { state, answers, names }: Records,
    container: Pick<Fields, 'key' | 'cgroupPath'> & Partial<Fields>,
    execs: readonly ProcessState[] = [],
  ) {
    this.#state = state
    this.#answers = answers
    this.#names = names
    this.#fields = ContainerPayload.create({ phase: Phase.CREATING, ...container })
    this.#folder = `${FOLDER}/${this.key}`
    this.#execs = new Map(execs.map((process) => [process.key, process]))
  }

  get fields(): Readonly<Fields> {
    return this.#fields
  }

  /** The container's first id. It names the records, the bundle and the runtime's state, and never changes. */
  get key(): string {
    return this.#fields.key
  }

  /** By which callers name it: a Rename changes it. */
  get id(): string {
    return this.#lastId ?? this.#names.idOf(this.key)
  }

  get execs(): readonly ProcessState[] {
    return [...this.#execs.values()]
  }

  /**
   * Changes fields and writes the record. Throws the kernel's error, and then keeps the old fields. Does nothing after
   * `remove`: an answer may be delivered after its container is gone, when another container may have the key.
   */
  save(changes: Partial<Fields>): void {
    if (this.#lastId !== undefined) return
    const fields = { ...this.#fields, ...changes }
    if (fields.request !== this.#fields.request) this.#answers.keep(this.#fields.request)
    this.#state.write(KINDS.container, `${this.#folder}/record`, fields)
    this.#fields = fields
  }

  /** Writes what is known before the OCI runtime makes the container, if anything. */
  saveSetUp(setUp: {
    readonly startContainer: readonly Hook[]
    readonly poststart: readonly Hook[]
    readonly pciAddresses: ReadonlyMap<string, string>
    readonly sysctls: readonly Sysctl[]
  }): void {
    const { startContainer, poststart, pciAddresses, sysctls } = setUp
    if (startContainer.length + poststart.length + pciAddresses.size + sysctls.length === 0) return
    this.save({
      startContainer: [...startContainer],
      poststart: [...poststart],
      pciAddresses: Object.fromEntries(pciAddresses),
      sysctls: [...sysctls],
    })
  }

  saveProcess(process: ProcessState): void {
    if (process.execId === '') {
      this.save({ init: process })
      return
    }
    this.#state.write(KINDS.exec, `${this.#folder}/${EXECS}/${process.key}`, { process })
    this.#execs.set(process.key, process)
  }

  /** Does nothing when the process, or its container, is gone. */
  saveHangup(key: string, hangup: HangupState | undefined): void {
    const exec = this.#execs.get(key)
    if (exec !== undefined && this.#lastId === undefined) this.saveProcess({ ...exec, hangup })
  }

  /** Records that callers can no longer ask for the process. */
  dropProcess(key: string): void {
    const { init } = this.#fields
    if (init?.key === key) this.save({ init: { ...init, forgotten: true } })
    const exec = this.#execs.get(key)
    if (exec === undefined) return
    this.#answers.keep(exec.request)
    this.#state.remove(`${this.#folder}/${EXECS}/${key}`)
    this.#execs.delete(key)
  }

  get oomKills(): bigint {
    return this.#fields.oomKills
  }

  saveOomKills(oomKills: bigint): void {
    this.save({ oomKills })
  }

  saveSpec(spec: ContainerSpec['spec']): void {
    this.#state.write(KINDS.spec, `${this.#folder}/spec`, { spec })
    this.#spec = spec
  }

  /** Throws UnreadableState, also when no specification was saved. */
  readSpec(): ContainerSpec['spec'] {
    this.#spec ??= this.#savedSpec()
    return this.#spec
  }

  #savedSpec(): ContainerSpec['spec'] {
    const { spec } = this.#state.require(KINDS.spec, `${this.#folder}/spec`)
    const { Process, Linux } = spec ?? {}
    if (spec !== undefined && Process !== undefined && Linux !== undefined) return { ...spec, Process, Linux }
    throw new UnreadableState('INTERNAL', `state ${this.#folder}/spec: incomplete`)
  }

  /** Removes the record first, because a record without a specification cannot be restored. */
  remove(): void {
    this.#lastId = this.id
    for (const { request } of [this.#fields, ...this.#execs.values()]) this.#answers.keep(request)
    this.#state.remove(`${this.#folder}/record`)
    this.#state.remove(this.#folder)
    this.#names.forget(this.key)
  }
}

/** Throws UnreadableState when a record cannot be read. */
export function readContainerRecords(records: Records): readonly ContainerRecord[] {
  const { state } = records
  return state.list(FOLDER).flatMap((key) => {
    const payload = state.read(KINDS.container, `${FOLDER}/${key}/record`)
    if (payload === undefined) {
      // A creation writes its record before all other steps, and a removal removes it after them: nothing else is left.
      state.remove(`${FOLDER}/${key}`)
      return []
    }
    const record = new ContainerRecord(records, payload, readExecs(state, `${FOLDER}/${key}/${EXECS}`))
    if (payload.init !== undefined) record.readSpec()
    return [record]
  })
}

function readExecs(state: StateStore, folder: string): readonly ProcessState[] {
  return state.list(folder).map((key) => {
    const { process } = state.require(KINDS.exec, `${folder}/${key}`)
    if (process?.key === key) return process
    throw new UnreadableState('INTERNAL', `state ${folder}/${key}: is of another process`)
  })
}
