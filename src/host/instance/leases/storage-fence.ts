import { AgentError } from '../../../base/errors.ts'
import type { QmpClient } from '../../qemu/qmp/client.ts'

/** Storage that tells its writers apart by the epoch of their lease. */
export interface StorageFence {
  /**
   * Ends the writers of earlier epochs, whose requests fail from then on, and lets those of this epoch write. Resolves with the name
   * under which they do. Rejects with FAILED_PRECONDITION when a later epoch has the volume. Two calls for one volume must not overlap.
   */
  fence(volume: string, epoch: bigint, signal: AbortSignal): Promise<string>
}

/** Of a name of a node in QEMU. */
const VOLUME = /^[a-zA-Z][\w.-]{0,30}$/
const MAX_EPOCH = 2n ** 63n - 1n

/**
 * Fences by a qemu-storage-daemon that has the volumes as nodes, by their names, and an NBD server: each epoch has an export of its
 * own. `qmp` is a session with it.
 */
export function qemuStorageFence(qmp: QmpClient): StorageFence {
  return {
    fence: async (volume, epoch, signal) => {
      checkNames(volume, epoch)
      const name = exportName(volume, epoch)
      const present = (await qmp.execute('query-block-exports', {}, signal)).flatMap(({ id }) => {
        const of = exportOf(id)
        return of?.volume === volume ? [{ id, epoch: of.epoch }] : []
      })
      const later = present.find((each) => each.epoch > epoch)
      if (later !== undefined)
        throw new AgentError(
          'FAILED_PRECONDITION',
          `volume ${volume}: epoch ${later.epoch} has it, want no earlier one than that`,
        )
      for (const { id } of present.filter((each) => each.epoch < epoch)) await endExport(qmp, id, signal)
      if (present.some((each) => each.epoch === epoch)) return name
      const kind = { type: 'nbd', id: exportId(volume, epoch), 'node-name': volume } as const
      await qmp.execute('block-export-add', { ...kind, name, writable: true }, signal)
      return name
    },
  }
}

/** Resolves when no request of its clients is left, because those that have begun could still change the volume. */
async function endExport(qmp: QmpClient, id: string, signal: AbortSignal): Promise<void> {
  const over = new AbortController()
  const gone = qmp.event(
    ({ name, data }) => name === 'BLOCK_EXPORT_DELETED' && data.id === id,
    AbortSignal.any([signal, over.signal]),
  )
  // It is awaited below, or nobody waits for it any more.
  gone.catch(() => {})
  try {
    await qmp.execute('block-export-del', { id, mode: 'hard' }, signal)
    await gone
  } finally {
    over.abort()
  }
}

function checkNames(volume: string, epoch: bigint): void {
  if (!VOLUME.test(volume))
    throw new AgentError(
      'INVALID_ARGUMENT',
      `volume ${JSON.stringify(volume)}: want a letter, then at most 30 letters, digits, "_", "." and "-"`,
    )
  if (epoch < 1n || epoch > MAX_EPOCH)
    throw new AgentError('INVALID_ARGUMENT', `volume ${volume}: epoch ${epoch}, want 1 to 2^63 - 1`)
}

/** An id of QEMU has no slash. */
function exportId(volume: string, epoch: bigint): string {
  return `lease-${epoch}-${volume}`
}

function exportName(volume: string, epoch: bigint): string {
  return `${volume}/${epoch}`
}

/** Undefined for an export that others have made. */
function exportOf(id: string): { readonly volume: string; readonly epoch: bigint } | undefined {
  const [, epoch, volume] = /^lease-(\d+)-(.+)$/.exec(id) ?? []
  return epoch === undefined || volume === undefined ? undefined : { volume, epoch: BigInt(epoch) }
}
