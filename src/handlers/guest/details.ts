import { AgentError } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import { raceSignal } from '../../base/signals.ts'
import type { GuestDetailsRequest, GuestDetailsResponse } from '../../gen/agent.ts'
import type { Os } from '../../os/os.ts'
import { runtimeHasSeccomp } from './runtime-features.ts'

/** What the calls about the guest itself work with. */
export interface GuestDependencies {
  readonly os: Pick<Os, 'files' | 'tools'>
  readonly log: Logger
  /** The OCI runtime's program. */
  readonly runtime: { readonly binary: string }
  /** True when the agent is in charge of the guest's boot. */
  readonly initMode: boolean
  /** The agent's own version. */
  readonly version: string
  /** Names of the storage drivers that there are. */
  readonly storageHandlers: readonly string[]
}

/** Calls about the guest itself. */
export interface GuestHandlers {
  /** GetGuestDetails (spec C.29). Throws INTERNAL when the kernel's memory block size cannot be read. */
  details(request: GuestDetailsRequest, call: { readonly signal: AbortSignal }): Promise<GuestDetailsResponse>
}

const MEMORY = '/sys/devices/system/memory'

/** Builds the calls; what cannot change while the agent runs is found out once. */
export function createGuestHandlers(dependencies: GuestDependencies): GuestHandlers {
  const { os, initMode, version, storageHandlers } = dependencies
  let seccomp: Promise<boolean> | undefined

  return {
    async details(request, { signal }) {
      // Without a caller's signal: the next caller waits for the same answer.
      seccomp ??= runtimeHasSeccomp(dependencies)
      const supportsSeccomp = await raceSignal(seccomp, signal)
      return {
        memBlockSizeBytes: request.memBlockSize ? await memoryBlockSize(os) : 0n,
        supportMemHotplugProbe:
          request.memHotplugProbe && (await os.files.stat(`${MEMORY}/probe`)) !== undefined,
        agentDetails: {
          version,
          initDaemon: initMode,
          deviceHandlers: [],
          storageHandlers: storageHandlers.toSorted(),
          supportsSeccomp,
          extraFeatures: [],
        },
      }
    },
  }
}

/** Hexadecimal without 0x in the file; 0 where memory cannot be added. */
async function memoryBlockSize({ files }: GuestDependencies['os']): Promise<bigint> {
  const path = `${MEMORY}/block_size_bytes`
  if ((await files.stat(path)) === undefined) return 0n
  const text = (await files.readText(path)).trim()
  if (!/^[0-9a-f]+$/i.test(text)) throw new AgentError('INTERNAL', `Invalid block size '${text}' in ${path}`)
  return BigInt(`0x${text}`)
}
