import { neverAborted } from '../../base/abort.ts'
import { AgentError } from '../../base/errors.ts'
import {
  type EnsureInstanceRequest,
  type Instance,
  SavedInit,
  State,
} from '../../gen/microvm/instance/v1/instance.ts'
import { InstanceRecord } from '../../gen/microvm/instance/v1/records.ts'
import { specKey } from '../spec/spec-key.ts'
import { describeEqual, describeInstance } from './describe-instance.ts'
import type { WantedInstance } from './documents/wanted-instance.ts'
import type { MachineInstance } from './instance.ts'
import type { Caller, Instances, OwnerCheck } from './instances.ts'
import type { Moves } from './moves.ts'

interface SavedHost {
  readonly moves: Moves | undefined
  readonly find: (key: string) => MachineInstance | undefined
  /** The instance that the caller may see. */
  readonly takenIn: (key: string, caller: Caller) => Promise<MachineInstance>
  readonly add: (record: InstanceRecord) => MachineInstance
}

export interface SavedCalls extends Pick<Instances, 'suspend' | 'listSaved' | 'deleteSaved'> {
  readonly ensure: (
    request: EnsureInstanceRequest,
    caller: Caller,
    checkOwner: OwnerCheck | undefined,
  ) => Promise<Instance>
}

/** What is asked about machines as files. */
export function savedCalls(host: SavedHost): SavedCalls {
  const moves = (): Moves => {
    if (host.moves !== undefined) return host.moves
    throw new AgentError('UNIMPLEMENTED', 'no machines are saved here')
  }
  const listSaved: SavedCalls['listSaved'] = async ({ tenant }) => await moves().list(tenant)
  const ensure: SavedCalls['ensure'] = async (request, caller, checkOwner) => {
    const { properties, saved = SavedInit.create() } = request
    const key = specKey(properties?.key ?? '')
    const known = host.find(key)
    if (known !== undefined) {
      const described = await describeEqual(known, wantedSaved(saved), caller)
      return described ?? (await ensure(request, caller, checkOwner))
    }
    const tenant = caller.tenant ?? properties?.tenant ?? ''
    caller.inStep('checking the saved machine')
    const content = await moves().open(saved, tenant)
    const { specification } = content.record
    if (specification !== undefined) await checkOwner?.(tenant, specification)
    // Another call may have made it meanwhile.
    if (host.find(key) !== undefined) return await ensure(request, caller, checkOwner)
    const instance = host.add({
      ...InstanceRecord.create(),
      ...content.record,
      ...{ properties: { key, tenant, labels: properties?.labels ?? {} }, current: State.CREATING },
      createdMs: BigInt(Date.now()),
    })
    await instance.change(() => moves().resume(instance, content, saved, caller), neverAborted)
    return await describeInstance(instance)
  }
  return {
    ensure,
    listSaved,
    suspend: async (request, caller) => {
      if (host.find(specKey(request.key)) === undefined && caller.isRepeated === true) {
        const all = await listSaved(caller)
        const done = all.find(({ key, name }) => key === request.key && name === request.name)
        if (done !== undefined) return done
      }
      const instance = await host.takenIn(request.key, caller)
      return await instance.change(() => moves().suspend(instance, request, caller), caller.signal)
    },
    deleteSaved: async (name, { isRepeated = false, tenant }) => {
      await moves()
        .remove(name, tenant ?? '')
        .catch((error) => {
          if (!isRepeated || !(error instanceof AgentError) || error.code !== 'NOT_FOUND') throw error
        })
    },
  }
}

function wantedSaved({ folder, name }: SavedInit): Pick<WantedInstance, 'differenceTo'> {
  return {
    differenceTo: ({ savedFolder, savedName }) =>
      savedName === name && (folder === '' || folder === savedFolder) ? undefined : 'saved',
  }
}
