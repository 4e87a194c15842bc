import { stat } from 'node:fs/promises'
import { AgentError } from '../../../base/errors.ts'
import type { Snapshot, SnapshotRequest } from '../../../gen/microvm/instance/v1/instance.ts'
import { describeInstance } from '../describe-instance.ts'
import { areFilesHidden, toldTo } from '../documents/hidden-files.ts'
import type { MachineInstance } from '../instance.ts'
import type { Caller, Instances } from '../instances.ts'
import { refuseLayers } from '../leases/check-lease.ts'
import type { Moves } from '../moves.ts'
import type { SavedRoom } from '../record/saved-room.ts'
import { layerPath } from './layers.ts'
import { STAT_BLOCK, usedByMemory } from './memory-folder.ts'
import { dropLayers, removeSnapshot } from './merge-layers.ts'
import type { Provide } from './plan-snapshot.ts'
import { revert } from './revert.ts'
import { mergeLater, refuseUnknown, settleLayers } from './settle.ts'
import { saveForClones, takeSnapshot } from './take-snapshot.ts'

export interface SnapshotCalls
  extends Pick<Instances, 'snapshot' | 'snapshots' | 'revert' | 'removeSnapshot'> {
  /**
   * Saves a machine that goes on, and makes clones of it by `make` from what has the name. What is below its disks stays as it is, and
   * what was saved stays until then.
   */
  saveForClones<Result>(
    request: Pick<SnapshotRequest, 'key' | 'withoutAgent'>,
    caller: Caller,
    make: (name: string) => Promise<Result>,
  ): Promise<Result>
}

interface SnapshotHost {
  readonly provide: Provide
  /** Without them no memory is kept. */
  readonly moves: Moves | undefined
  readonly room: SavedRoom
}

/** What is asked about snapshots; `find` gives the instance that the caller may see. */
export function snapshotCalls(
  find: (key: string, caller: Caller) => Promise<MachineInstance>,
  { moves, provide, room }: SnapshotHost,
): SnapshotCalls {
  const change = async <T>(
    key: string,
    caller: Caller,
    work: (instance: MachineInstance) => Promise<T>,
  ): Promise<T> => {
    const instance = await find(key, caller)
    caller.inStep('changing the layers of disks')
    return await instance.change(async () => {
      await settleLayers(instance)
      await refuseUnknown(instance)
      return await work(instance).catch(toldTo(caller, instance))
    }, caller.signal)
  }
  return {
    snapshot: (request, caller) =>
      change(request.key, caller, async (instance) => {
        refuseLayers(instance.record)
        const take = () =>
          takeSnapshot(instance, request, { caller, moves, provide }).catch((error) => {
            mergeLater(instance)
            throw error
          })
        const snapshot = await (request.memory ? room.within(instance, take) : take())
        return await answerOf(instance, snapshot, areFilesHidden(instance.record, caller))
      }),
    snapshots: async (key, caller) => {
      const instance = await find(key, caller)
      const { context, record } = instance
      const isHidden = areFilesHidden(record, caller)
      const layers = record.layers.map(async (layer) => {
        const status = await stat(layerPath(context.folder, layer.id)).catch(() => undefined)
        const { base, secret } = isHidden ? { base: '', secret: '' } : layer
        return { ...layer, base, secret, usedBytes: BigInt((status?.blocks ?? 0) * STAT_BLOCK) }
      })
      const snapshots = record.snapshots.map((snapshot) => answerOf(instance, snapshot, isHidden))
      return { snapshots: await Promise.all(snapshots), layers: await Promise.all(layers) }
    },
    revert: async ({ key, name }, checkOwner, caller) => {
      await change(key, caller, async (instance) => {
        await revert(instance, name, { caller, checkOwner, moves, provide })
        await dropLayers(instance)
      })
      return await describeInstance(await find(key, caller))
    },
    saveForClones: async ({ key, withoutAgent }, caller, make) => {
      if (moves === undefined) throw new AgentError('UNIMPLEMENTED', 'key: no machines are saved here')
      const source = await find(key, caller)
      const passing = moves.passingOf(source.record.properties?.tenant ?? '')
      const options = { caller, moves, provide }
      return await room.within(source, async () => {
        source.clonesUnderWay += 1
        try {
          await change(key, caller, (instance) =>
            saveForClones(instance, { ...passing, withoutAgent }, options),
          )
          return await make(passing.name)
        } finally {
          await moves.endPassing(passing.folder).finally(() => {
            source.clonesUnderWay -= 1
            mergeLater(source)
          })
        }
      })
    },
    removeSnapshot: async (request, caller) => {
      const remove = (instance: MachineInstance) => removeSnapshot(instance, request, caller)
      return { stillUs: BigInt(await change(request.key, caller, remove)) }
    },
  }
}

async function answerOf(
  { context }: MachineInstance,
  snapshot: Snapshot,
  isHidden: boolean,
): Promise<Snapshot> {
  const memoryBytes = snapshot.memory ? await usedByMemory(context.folder, snapshot.name) : 0n
  return { ...snapshot, memoryBytes, ...(isHidden && { specification: undefined }) }
}
