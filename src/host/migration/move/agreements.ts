import type { HypervisorID } from '../../../gen/vm.ts'
import { isOf } from '../../instance/moving/only-vm.ts'
import type { BulkDisk } from '../bulk/bulk.ts'
import type { KeptPort } from '../bulk/sockets.ts'
import { isSame, refused } from './move-host.ts'

/** A source that has agreed on a way, and until when it may begin the handover. */
export interface Agreement {
  readonly us: HypervisorID
  /** Those that are copied. */
  readonly disks: readonly BulkDisk[]
  /** Where these come; undefined without any. */
  readonly port: KeptPort | undefined
}

/** What this host has agreed on with sources, by the keys of the instances that await their machines. */
export class Agreements {
  readonly #all = new Map<string, Agreement & { readonly late: NodeJS.Timeout }>()
  readonly #ms: number

  constructor(ms: number, closing: AbortSignal) {
    this.#ms = ms
    const end = () => {
      for (const key of this.#all.keys()) this.#drop(key)
    }
    closing.addEventListener('abort', end, { once: true })
  }

  /** In place of an earlier one. */
  add(key: string, agreement: Agreement): void {
    this.#drop(key)
    const late = setTimeout(() => this.#drop(key), this.#ms)
    late.unref()
    this.#all.set(key, { ...agreement, late })
  }

  /** For one handover. The caller closes the port. Throws FAILED_PRECONDITION without one, and when it is too late. */
  take(key: string, us: HypervisorID, from: string): Agreement {
    const known = this.#all.get(key)
    if (!isOf(from, us) || known === undefined || !isSame(known.us, us))
      throw refused(
        `instance ${key}: no move from ${us.podName.slice(0, 128)} was agreed on, want StartMigration before`,
      )
    clearTimeout(known.late)
    this.#all.delete(key)
    return known
  }

  #drop(key: string): void {
    const known = this.#all.get(key)
    if (known === undefined) return
    clearTimeout(known.late)
    known.port?.close()
    this.#all.delete(key)
  }
}
