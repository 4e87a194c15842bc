import { neverAborted } from '../../base/abort.ts'
import { AgentError, messageOf } from '../../base/errors.ts'
import { Identity } from '../../gen/microvm/agent/v1/lifecycle.ts'
import {
  type CloneInstanceRequest,
  EnsureInstanceRequest,
  type Instance,
  SavedInit,
  type SavedMachine,
  State,
} from '../../gen/microvm/instance/v1/instance.ts'
import { InstanceRecord } from '../../gen/microvm/instance/v1/records.ts'
import { specKey } from '../spec/spec-key.ts'
import { describeEqual, describeInstance, isVisible } from './describe-instance.ts'
import type { WantedInstance } from './documents/wanted-instance.ts'
import type { MachineInstance } from './instance.ts'
import type { Caller, Instances, OwnerCheck } from './instances.ts'
import { isOfTemplate, type Moves, TEMPLATE_NAME } from './moves.ts'
import type { SavedRoom } from './record/saved-room.ts'
import { mergeAll } from './snapshots/settle.ts'
import type { SnapshotCalls } from './snapshots/snapshot-calls.ts'

interface SavedHost {
  readonly moves: Moves | undefined
  readonly instances: ReadonlyMap<string, MachineInstance>
  /** The instance that the caller may see. */
  readonly takenIn: (key: string, caller: Caller) => Promise<MachineInstance>
  readonly add: (record: InstanceRecord) => MachineInstance
  readonly room: SavedRoom
  readonly save: SnapshotCalls['saveForClones']
}

export interface SavedCalls extends Pick<Instances, 'clone' | 'suspend' | 'listSaved' | 'deleteSaved'> {
  readonly ensure: (
    request: EnsureInstanceRequest,
    caller: Caller,
    checkOwner: OwnerCheck | undefined,
  ) => Promise<Instance>
}

interface EnsureCall {
  readonly caller: Caller
  readonly checkOwner: OwnerCheck | undefined
  /** Without it, the saved machine itself goes on. */
  readonly clone?: Pick<CloneInstanceRequest, 'key' | 'withoutAgent'>
}

/** What is asked about machines as files. */
export function savedCalls(host: SavedHost): SavedCalls {
  const moves = (): Moves => {
    if (host.moves !== undefined) return host.moves
    throw new AgentError('UNIMPLEMENTED', 'no machines are saved here')
  }
  const listSaved: SavedCalls['listSaved'] = async (caller) =>
    (await moves().list(caller.tenant)).map((saved) => seenBy(saved, caller))
  const ensureOf = async (request: EnsureInstanceRequest, how: EnsureCall): Promise<Instance> => {
    const { caller, checkOwner, clone } = how
    const { properties, saved = SavedInit.create() } = request
    const key = specKey(properties?.key ?? '')
    const tenant = caller.tenant ?? properties?.tenant ?? ''
    const known = host.instances.get(key)
    if (known !== undefined) {
      const described = await describeKnown(known, { ...saved, tenant }, moves(), how)
      return described ?? (await ensureOf(request, how))
    }
    caller.inStep('checking the saved machine')
    const content = await (clone === undefined
      ? moves().open(saved, tenant)
      : moves().openClone(saved, tenant, clone))
    try {
      const { document, specification } = content.record
      // What is behind the machine of a document is looked up by the tenant's rules as it starts.
      if (document === undefined && specification !== undefined) await checkOwner?.(tenant, specification)
      // Another call may have made it meanwhile.
      if (host.instances.get(key) !== undefined) return await ensureOf(request, how)
      const instance = host.add({
        ...InstanceRecord.create(),
        ...content.record,
        ...{ properties: { key, tenant, labels: properties?.labels ?? {} }, current: State.CREATING },
        clonedKey: clone?.key ?? '',
        createdMs: BigInt(Date.now()),
      })
      await instance.change(() => moves().resume(instance, content, saved, caller), neverAborted)
      return await describeInstance(instance)
    } finally {
      content.release?.()
      if (clone !== undefined) freeMemory(content.record, host)
    }
  }
  return {
    ensure: (request, caller, checkOwner) =>
      ensureOf(request, {
        caller,
        checkOwner,
        ...(request.saved !== undefined && isOfTemplate(request.saved) && { clone: OF_TEMPLATE }),
      }),
    clone: (request, caller, checkOwner) =>
      cloneBy((ensured) => ensureOf(ensured, { caller, checkOwner, clone: request }), request, host, caller),
    listSaved,
    suspend: async (request, caller) => {
      if (host.instances.get(specKey(request.key)) === undefined && caller.isRepeated === true) {
        const all = await listSaved(caller)
        const done = all.find(({ key, name }) => key === request.key && name === request.name)
        if (done !== undefined) return done
      }
      const instance = await host.takenIn(request.key, caller)
      const saved = await instance.change(async () => {
        const suspend = () => moves().suspend(instance, request, caller)
        return await (request.folder === '' ? host.room.within(instance, suspend) : suspend())
      }, caller.signal)
      return seenBy(saved, caller)
    },
    deleteSaved: async (name, { isRepeated = false, tenant }) => {
      await moves()
        .remove(name, tenant ?? '')
        .catch((error) => {
          if (!isRepeated || !(error instanceof AgentError) || error.code !== 'NOT_FOUND') throw error
        })
      mergeAll(host.instances)
    },
  }
}

/** The instance that is there already, once its guest is ready; undefined when it could not be made. */
async function describeKnown(
  known: MachineInstance,
  saved: SavedInit & { readonly tenant: string },
  moves: Moves,
  { caller, clone }: Pick<EnsureCall, 'caller' | 'clone'>,
): Promise<Instance | undefined> {
  const wanted = wantedOf(saved, clone)
  const isOther = isVisible(known, caller) && wanted.differenceTo(known.record) !== undefined
  if (clone?.key === undefined && isOther) await refuseGone(moves, known, saved)
  const described = await describeEqual(known, wanted, caller)
  if (described !== undefined) await known.change(() => moves.repair(known), caller.signal)
  return described
}

/** Makes clones by `ensure`, of a saved machine or of one that goes on. */
async function cloneBy(
  ensure: (request: EnsureInstanceRequest) => Promise<Instance>,
  request: CloneInstanceRequest,
  host: SavedHost,
  caller: Caller,
): Promise<readonly Instance[]> {
  const cloneAll = (of: string, tenant = '') =>
    cloneInstances(request, of, (key, saved) =>
      ensure(EnsureInstanceRequest.fromPartial({ properties: { key, tenant }, saved })),
    )
  const { key, saved = '' } = request
  if (key === undefined) return await cloneAll(saved)
  const { tenant } = (await host.takenIn(key, caller)).record.properties ?? {}
  const known = keysOf(request).map((each) => host.instances.get(each))
  for (const each of known) if (each) await describeEqual(each, wantedOf(undefined, request), caller)
  if (known.every((each) => each !== undefined)) return await cloneAll(saved, tenant)
  return await host.save({ ...request, key }, caller, (name) => cloneAll(name, tenant))
}

/** What was kept for a clone that is gone goes, unless others need it. */
export function cloneGone(record: InstanceRecord, host: Pick<SavedHost, 'instances' | 'moves'>): void {
  mergeAll(host.instances)
  freeMemory(record, host)
}

/** Ends what holds the memory of clones once no machine has it any more; that of a template stays. */
export function freeMemory(
  { savedId = '', savedName = '' }: Partial<InstanceRecord>,
  { instances, moves }: Pick<SavedHost, 'instances' | 'moves'>,
): void {
  if (savedId === '' || TEMPLATE_NAME.test(savedName)) return
  const isUsed = () =>
    [...instances.values()].some(({ record }) => record.savedId === savedId && record.privateMemory !== '')
  void moves?.freeMemory(savedId, isUsed)
}

/** Whoever makes a template without an agent wants its clones so. */
const OF_TEMPLATE = { withoutAgent: true }

/** A tenant may not know where the host has it. */
function seenBy(saved: SavedMachine, { tenant }: Pick<Caller, 'tenant'>): SavedMachine {
  return tenant === undefined ? saved : { ...saved, folder: '' }
}

function wantedOf(
  { folder, name } = SavedInit.create(),
  clone: EnsureCall['clone'],
): Pick<WantedInstance, 'differenceTo'> {
  const isClone = clone !== undefined
  const of = clone?.key
  return {
    differenceTo: ({ clonedKey, madeByClone, savedFolder, savedName }) => {
      const isSaved = savedName === name && (folder === '' || folder === savedFolder)
      const isSame = madeByClone === isClone && (of === undefined ? isSaved : clonedKey === of)
      return isSame ? undefined : of === undefined ? 'saved' : 'key'
    },
  }
}

/** Throws what has become of a saved machine that is asked for with the key of another instance. */
async function refuseGone(
  moves: Moves,
  { key, record }: MachineInstance,
  { folder, name, tenant }: Pick<SavedInit, 'folder' | 'name'> & { readonly tenant: string },
): Promise<void> {
  await moves.refuseGone({ folder, name }, tenant).catch((error) => {
    if (!(error instanceof AgentError) || error.code !== 'NOT_FOUND') throw error
    const does = record.current === State.RUNNING ? 'runs' : 'is there'
    const text = `${name}: no machine is saved under this name, and instance ${key} ${does}`
    throw new AgentError('NOT_FOUND', text, { cause: error })
  })
}

/** How many are made at a time: each fills its memory, and its guest is busy with its repair. */
const AT_ONCE = 4

/**
 * Makes the clones that are asked for of the saved machine with the name by `make`, which finds those that are there already. When some fail, the others stay, and the
 * error names both.
 */
async function cloneInstances(
  request: CloneInstanceRequest,
  name: string,
  make: (key: string, init: SavedInit) => Promise<Instance>,
): Promise<readonly Instance[]> {
  const { replaceComponents } = request
  const clones = keysOf(request).map((key, index) => ({
    key,
    init: SavedInit.fromPartial({ name, replaceComponents, identity: identityOf(request, index + 1) }),
  }))
  const outcomes = new Map<string, Instance | AgentError>()
  const waiting = [...clones]
  const lane = async () => {
    for (let next = waiting.shift(); next !== undefined; next = waiting.shift())
      outcomes.set(next.key, await make(next.key, next.init).catch(failureOf))
  }
  await Promise.all(Array.from({ length: AT_ONCE }, lane))
  const made: Instance[] = []
  const failed: string[] = []
  let first: AgentError | undefined
  for (const { key } of clones) {
    const outcome = outcomes.get(key)
    if (!(outcome instanceof AgentError)) made.push(...(outcome === undefined ? [] : [outcome]))
    else {
      first ??= outcome
      failed.push(`clone ${key}: ${outcome.message}`)
    }
  }
  if (first === undefined) return made
  const names = made.map(({ properties }) => properties?.key ?? '').join(', ')
  const others = names === '' ? 'no clone was made' : `made: ${names}`
  throw new AgentError(first.code, `${failed.join('; ')}; ${others}`, { cause: first })
}

function failureOf(error: unknown): AgentError {
  return error instanceof AgentError ? error : new AgentError('INTERNAL', messageOf(error), { cause: error })
}

function keysOf(request: CloneInstanceRequest): readonly string[] {
  return Array.from({ length: request.count }, (_, index) => keyOf(request, index + 1))
}

function keyOf({ count, name }: CloneInstanceRequest, number: number): string {
  return specKey(count === 1 ? name : `${name}-${number}`)
}

/** A host's name is its own in each clone. */
function identityOf(request: CloneInstanceRequest, number: number): Identity {
  const { count, identity } = request
  const key = keyOf(request, number)
  const given = identity?.hostname ?? ''
  const hostname = given === '' ? hostnameOf(key) : count === 1 ? given : `${given}-${number}`
  return Identity.fromPartial({ ...identity, hostname })
}

/** The key as far as it can be the name of a host (RFC 1123). */
function hostnameOf(key: string): string {
  const name = key
    .replace(/[^A-Za-z0-9.-]+/g, '-')
    .slice(-MAX_HOSTNAME)
    .replace(/^[.-]+|[.-]+$/g, '')
  return name === '' ? 'clone' : name
}

/** Linux's limit, in bytes. */
export const MAX_HOSTNAME = 64
