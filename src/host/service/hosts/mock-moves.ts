import { AgentError } from '../../../base/errors.ts'
import {
  HostEntry,
  type Instance,
  MigrateInstanceResponse,
} from '../../../gen/microvm/instance/v1/instance.ts'
import type { Caller, MoveCalls } from '../../instance/instances.ts'

const [OWN, OTHER] = ['a', 'b']
const MIB = 2n ** 20n
/** 1 Gbit/s. */
const BYTES_PER_MS = 125_000n

const noMachines = async (): Promise<never> => {
  throw new AgentError('UNIMPLEMENTED', 'a mock takes no machines in')
}

// biome-ignore lint/correctness/useYield: it fails before its first answer
async function* failing(): AsyncGenerator<never> {
  await noMachines()
}

/** The calls about other hosts, of which a mock has one, that forgets each instance it is given. */
export function mockMoves({
  remove,
  seen,
}: {
  readonly seen: (key: string, caller: Caller) => Instance
  readonly remove: (key: string, caller: Caller) => Promise<void>
}): MoveCalls {
  let isDraining = false
  const entry = (id: string, own: boolean) =>
    HostEntry.fromPartial({ id, own, endpoint: `${id}:7443`, qemuVersion: '7.2.22', memoryMib: 1024n })
  return {
    migrate: async function* ({ dryRun, key, toHost }, caller) {
      const host = toHost || OTHER
      const { specification } = seen(key, caller)
      if (host !== OTHER) throw new AgentError('FAILED_PRECONDITION', `target: host ${host}: is not there`)
      const memoryBytes = (specification?.board?.memoryMib ?? 0n) * MIB
      const obstacles = Object.entries(specification?.backends ?? {}).flatMap(([name, { passt }]) =>
        passt === undefined
          ? []
          : [`backends.${name}: its connections would break: passt has them in its memory`],
      )
      if (dryRun) {
        yield MigrateInstanceResponse.fromPartial({
          forecast: { host, obstacles, memoryBytes, expectedMs: memoryBytes / BYTES_PER_MS },
        })
        return
      }
      const [obstacle] = obstacles
      if (obstacle !== undefined) throw new AgentError('FAILED_PRECONDITION', obstacle)
      yield MigrateInstanceResponse.fromPartial({ step: 'target' })
      yield MigrateInstanceResponse.fromPartial({
        step: 'memory',
        doneBytes: memoryBytes,
        totalBytes: memoryBytes,
      })
      await remove(key, caller)
      const step = { name: 'memory', durationUs: 1000n, state: 'done' }
      yield MigrateInstanceResponse.fromPartial({
        moved: { host, endpoint: `${host}:7443`, timeMs: 1n },
        operation: { kind: 'move', startedMs: 1n, durationUs: 2000n, steps: [step] },
      })
    },
    hosts: async () => [{ ...entry(OWN, true), draining: isDraining }, entry(OTHER, false)],
    drain: async (wanted) => {
      isDraining = wanted
    },
    ensureTarget: noMachines,
    giveUpTarget: noMachines,
    startMigration: noMachines,
    fenceVolume: noMachines,
    handover: failing,
    settled: async () => {},
  }
}
