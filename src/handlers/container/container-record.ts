import type { Hook } from '../../gen/oci.ts'
import {
  ContainerPayload,
  ContainerPayload_Phase as Phase,
  type ProcessState,
  type Sysctl,
} from '../../gen/state/container.ts'
import type { ContainerSpec } from '../../oci/container-spec.ts'
import type { RequestJournal } from '../../state/request-journal.ts'
import { KINDS, type StateStore, UnreadableState } from '../../state/state-store.ts'

export { Phase }

type Fields = Omit<ContainerPayload, 'schemaVersion'>

/** The folder of the records; each container has a folder below it with the container's key as its name. */
const FOLDER = 'containers'
/** The folder of a container's added processes. */
const EXECS = 'execs'

/** What is to know when a record does not tell the answer to a request any more. */
export type Answers = Pick<RequestJournal, 'keep'>

/** What is saved of one container for the next agent (proto/state/container.proto). */
export class ContainerRecord {
  readonly #state: StateStore
  readonly #answers: Answers
  readonly #folder: string
  #fields: Fields
  #isRemoved = false
  /** The processes that were added, by their keys. Each has a file of its own, so that one does not rewrite all. */
  readonly #execs: Map<string, ProcessState>

  /** The record of a container that is not written yet, or as it was written. */
  constructor(
    { state, answers }: { readonly state: StateStore; readonly answers: Answers },
    container: Pick<Fields, 'id' | 'cgroupPath'> & Partial<Fields>,
    execs: readonly ProcessState[] = [],
  ) {
    this.#state = state
    this.#answers = answers
    this.#fields = ContainerPayload.create({ phase: Phase.CREATING, key: container.id, ...container })
    this.#folder = `${FOLDER}/${this.key}`
    this.#execs = new Map(execs.map((process) => [process.key, process]))
  }

  get fields(): Readonly<Fields> {
    return this.#fields
  }

  /**
   * Names its records, its bundle and what the OCI runtime has of it: its first id, whatever its id is later. The registry
   * finds it by the id.
   */
  get key(): string {
    return this.#fields.key
  }

  /** The processes that were added. */
  get execs(): readonly ProcessState[] {
    return [...this.#execs.values()]
  }

  /**
   * Changes fields, and writes the record. Throws the kernel's error; the fields then stay as they were. Does nothing once it is
   * removed: an answer may be delivered after its container is gone, and another one may have the key.
   */
  save(changes: Partial<Fields>): void {
    if (this.#isRemoved) return
    const fields = { ...this.#fields, ...changes }
    if (fields.request !== this.#fields.request) this.#answers.keep(this.#fields.request)
    this.#state.write(KINDS.container, `${this.#folder}/record`, fields)
    this.#fields = fields
  }

  /** Writes what is known before the OCI runtime makes the container. */
  saveSetUp(setUp: {
    readonly startContainer: readonly Hook[]
    readonly poststart: readonly Hook[]
    readonly pciAddresses: ReadonlyMap<string, string>
    readonly sysctls: readonly Sysctl[]
  }): void {
    this.save({
      startContainer: [...setUp.startContainer],
      poststart: [...setUp.poststart],
      pciAddresses: Object.fromEntries(setUp.pciAddresses),
      sysctls: [...setUp.sysctls],
    })
  }

  /** Writes what is known of a process: the first one, or one that was added. */
  saveProcess(process: ProcessState): void {
    if (process.execId === '') {
      this.save({ init: process })
      return
    }
    this.#state.write(KINDS.exec, `${this.#folder}/${EXECS}/${process.key}`, { process })
    this.#execs.set(process.key, process)
  }

  /** Writes that a process cannot be asked for any more. */
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
  }

  /** The specification that was saved last. Throws UnreadableState, also when there is none. */
  readSpec(): ContainerSpec['spec'] {
    const { spec } = this.#state.require(KINDS.spec, `${this.#folder}/spec`)
    const { Process, Linux } = spec ?? {}
    if (spec !== undefined && Process !== undefined && Linux !== undefined) return { ...spec, Process, Linux }
    throw new UnreadableState('INTERNAL', `state ${this.#folder}/spec: incomplete`)
  }

  /** Removes the record, then the specification, because a container is not restored from a record without one. */
  remove(): void {
    this.#isRemoved = true
    for (const { request } of [this.#fields, ...this.#execs.values()]) this.#answers.keep(request)
    this.#state.remove(`${this.#folder}/record`)
    this.#state.remove(this.#folder)
  }
}

/** The records of all containers. Throws UnreadableState for one that cannot be read. */
export function readContainerRecords(state: StateStore, answers: Answers): readonly ContainerRecord[] {
  return state.list(FOLDER).flatMap((key) => {
    const payload = state.read(KINDS.container, `${FOLDER}/${key}/record`)
    if (payload === undefined) {
      // The agent died while it wrote the first record, before all else, or while it removed this one, after all else.
      state.remove(`${FOLDER}/${key}`)
      return []
    }
    const record = new ContainerRecord(
      { state, answers },
      payload,
      readExecs(state, `${FOLDER}/${key}/${EXECS}`),
    )
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
