import { AgentError } from '../../base/errors.ts'
import type { Before, EarlierCall, NamesPayload } from '../../gen/state/names.ts'
import { KINDS, type StateStore } from '../../state/state-store.ts'

const NAME = 'names'

/** How many of its former ids a container is known by, besides its key. */
const MOST_FORMER = 16

type Fields = Omit<NamesPayload, 'schemaVersion'>

const NO_NAMES: Fields = { sandboxId: '', containers: [], request: 0n, calls: [], before: undefined }

/** A container, as its record identifies it. */
export interface Named {
  readonly key: string
  readonly createdNs: bigint
}

/** The ids that a Rename sets. */
export interface NewNames {
  /** Undefined: it stays. */
  readonly sandboxId: string | undefined
  readonly containers: readonly (Named & { readonly id: string })[]
  /** The number of the request. */
  readonly request: bigint
  /** The numbers of the calls that are not answered yet. */
  readonly open: ReadonlySet<bigint>
  /** Those whose ids were the containers' until now. */
  readonly calls: readonly EarlierCall[]
}

/**
 * The one table from ids to keys, of renamed containers: any other has its key as its id. It changes in one write
 * (proto/state/names.proto). Whatever tells or takes an id of a container asks here.
 */
export class ContainerNames {
  readonly #state: StateStore
  #fields: Fields = NO_NAMES
  #isChanging = false
  #keys: ReadonlyMap<string, string> = new Map()
  #formerKeys: ReadonlyMap<string, string> = new Map()
  #ids: ReadonlyMap<string, string> = new Map()

  constructor(state: StateStore) {
    this.#state = state
  }

  /** Undefined: the sandbox has the id of its record. */
  get sandboxId(): string | undefined {
    return this.#fields.sandboxId === '' ? undefined : this.#fields.sandboxId
  }

  /** The number of the last request that has set names; 0 for none. */
  get request(): bigint {
    return this.#fields.request
  }

  /** What a Rename has changed that did not set its names. */
  get before(): Before | undefined {
    return this.#fields.before
  }

  idOf(key: string): string {
    return this.#ids.get(key) ?? key
  }

  presentId({ key, createdNs }: Named): string | undefined {
    return this.#fields.containers.find((one) => one.key === key && one.createdNs === createdNs)?.id
  }

  /** The key of the container that would have this id; undefined for the first id of a renamed one. */
  keyOf(id: string): string | undefined {
    return this.#keys.get(id) ?? (this.#ids.has(id) ? undefined : id)
  }

  /** The key of the container that has had this id, and has another one now. */
  formerKeyOf(id: string): string | undefined {
    return this.#formerKeys.get(id) ?? (this.#ids.has(id) ? id : undefined)
  }

  /** Throws UnreadableState. Names of containers that are gone are left out. */
  restore(containers: readonly Named[]): void {
    const payload = this.#state.read(KINDS.names, NAME)
    if (payload === undefined) return
    const created = new Map(containers.map(({ key, createdNs }) => [key, createdNs]))
    this.#become({
      ...payload,
      containers: payload.containers.filter(({ key, createdNs }) => created.get(key) === createdNs),
    })
  }

  /** Begins a Rename; the caller calls the returned function at its end. Throws FAILED_PRECONDITION while another is under way. */
  begin(): () => void {
    if (this.#isChanging) throw new AgentError('FAILED_PRECONDITION', 'sandbox: another Rename is under way')
    this.#isChanging = true
    return () => {
      this.#isChanging = false
    }
  }

  /** Records what a Rename is about to change. Throws RESOURCE_EXHAUSTED or the kernel's error. */
  saveBefore(before: Before): void {
    this.#save({ ...this.#fields, before })
  }

  /** The changes that `before` tells are undone. */
  dropBefore(): void {
    if (this.before !== undefined) this.#save({ ...this.#fields, before: undefined })
  }

  /** Sets names, in one write. Throws as {@link saveBefore}, and then keeps the old names. */
  commit({ sandboxId, containers, request, open, calls }: NewNames): void {
    const entries = new Map(this.#fields.containers.map((one) => [one.key, one]))
    for (const { key, createdNs, id } of containers) {
      const last = entries.get(key)
      const former = last === undefined ? [] : [...last.former, last.id]
      const known = former.filter((one) => one !== id && one !== key).slice(-MOST_FORMER)
      entries.set(key, { key, createdNs, id, former: known })
    }
    const earlier = this.#fields.calls.filter((call) => open.has(call.request))
    const known = new Set(earlier.map((call) => call.request))
    this.#save({
      sandboxId: sandboxId ?? this.#fields.sandboxId,
      containers: [...entries.values()],
      request,
      calls: [...earlier, ...calls.filter((call) => !known.has(call.request))],
      before: undefined,
    })
  }

  /** A call of before the last Rename that is sent again names its container by the present id from here on. */
  bringUpToDate(number: bigint, request: object): void {
    const earlier = this.#fields.calls.find((call) => call.request === number)
    if (earlier === undefined || !('containerId' in request)) return
    const id = this.idOf(earlier.key)
    request.containerId = id
    if ('execId' in request && request.execId === earlier.containerId) request.execId = id
  }

  /** The container is gone. What is recorded of it names no other: none has its key and its time. */
  forget(key: string): void {
    if (!this.#ids.has(key)) return
    this.#become({
      ...this.#fields,
      containers: this.#fields.containers.filter((one) => one.key !== key),
    })
  }

  /** A new sandbox has the id of its record. */
  forgetSandbox(): void {
    if (this.#fields.sandboxId !== '') this.#save({ ...this.#fields, sandboxId: '' })
  }

  clear(): void {
    if (this.#fields === NO_NAMES) return
    this.#state.remove(NAME)
    this.#become(NO_NAMES)
  }

  #save(fields: Fields): void {
    this.#state.write(KINDS.names, NAME, fields)
    this.#become(fields)
  }

  #become(fields: Fields): void {
    this.#fields = fields
    // A container that has its first id again needs no entry, but keeps its former ids.
    this.#ids = new Map(fields.containers.map(({ key, id }) => [key, id]))
    this.#keys = new Map(fields.containers.map(({ key, id }) => [id, key]))
    this.#formerKeys = new Map(fields.containers.flatMap(({ key, former }) => former.map((id) => [id, key])))
  }
}
