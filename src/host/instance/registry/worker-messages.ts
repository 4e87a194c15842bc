import type { StatusCodeName } from '../../../base/errors.ts'
import type { Change, Table } from './registry.ts'

export interface WorkerData {
  readonly stateFolder: string
  /** The worker makes the registry anew, answers with the report, and ends. */
  readonly rebuilds: boolean
}

export type Request =
  | { readonly kind: 'load'; readonly table: Table }
  | { readonly kind: 'commit'; readonly changes: readonly Change[]; readonly usesReserve: boolean }
  | { readonly kind: 'close' }

/** Answers come in the order of the requests; the first one is of the start. */
export type Answer =
  | { readonly value: unknown }
  | {
      readonly error: {
        readonly code: StatusCodeName
        readonly message: string
        readonly errno: string | undefined
      }
    }
