import { isDeepStrictEqual } from 'node:util'
import { AgentError } from '../../../base/errors.ts'
import { File_Access, type MigrationTarget } from '../../../gen/microvm/instance/v1/instance.ts'
import {
  type MigrationProtocol_Qemu_Disk as Disk,
  type MigrationProtocol,
  MigrationProtocol_Qemu as Qemu,
} from '../../../gen/vm.ts'
import type { BulkDisk } from '../bulk/bulk.ts'
import { bulkDisk } from './disks-along.ts'
import { HANDOVER_VERSION, refused } from './move-host.ts'

/*
 * What StartMigration agrees on. A source offers QEMU's own protocol for memory alone and, where it has disks that can be copied, with
 * these. A target takes the second where it has another file for one of them.
 */

/** What a source offers whose `disks` can be copied, the one without copies first. */
export function offers(disks: readonly Disk[]): readonly MigrationProtocol[] {
  const always = { constraintTls: true, constraintHandover: HANDOVER_VERSION }
  const withDisks = { ...always, constraintWithBlockmigration: true, constraintNbd: [...disks] }
  return [always, ...(disks.length === 0 ? [] : [withDisks])].map((each) => ({
    qmeuBlock: Qemu.fromPartial(each),
  }))
}

/** What both sides have agreed on, for the source. */
export interface Agreed {
  /** HOST:PORT of the target's NBD server; empty without disks. */
  readonly disksEndpoint: string
  /** Those that are copied. */
  readonly disks: readonly (BulkDisk & { readonly path: string })[]
}

/** Throws FAILED_PRECONDITION for an answer of a target that has dropped a constraint: it has not understood that. */
export function agreedOn(
  host: string,
  {
    offered,
    answer,
    dryRun,
  }: {
    readonly offered: readonly MigrationProtocol[]
    readonly answer: MigrationProtocol | undefined
    readonly dryRun?: true | undefined
  },
): Agreed {
  const fail = (text: string) => refused(`host ${host}: ${text}`)
  const chosen = answer?.qmeuBlock
  if (chosen === undefined) throw fail('has chosen a protocol that was not offered')
  if (chosen.constraintHandover !== HANDOVER_VERSION)
    throw fail(`does not speak version ${HANDOVER_VERSION} of the handover`)
  if (!chosen.constraintTls) throw fail('has dropped the constraint tls')
  const disks =
    offered.find(({ qmeuBlock }) => qmeuBlock?.constraintWithBlockmigration)?.qmeuBlock?.constraintNbd ?? []
  if (!isDeepStrictEqual(chosen.constraintNbd, chosen.constraintWithBlockmigration ? disks : []))
    throw fail('has dropped the constraint nbd, so it would not take the disks')
  const { negotiatedExport: exported, negotiatedNbdEndpoint: disksEndpoint } = chosen
  if (exported.length > 0 && disksEndpoint === '' && !dryRun) throw fail('has told no endpoint for disks')
  return {
    disksEndpoint,
    disks: exported.map(({ key, name }) => {
      const disk = chosen.constraintNbd.find((each) => each.key === key)
      if (disk === undefined || name !== key)
        throw fail(`no disk ${key.slice(0, 128)} is to be copied as ${name.slice(0, 128)}`)
      return { ...bulkDisk(key, Number(disk.sizeBytes)), path: disk.path }
    }),
  }
}

/** What a target takes, with the constraints that it has understood. */
export interface Choice {
  readonly protocol: Qemu
  /** Those that are copied. */
  readonly disks: readonly BulkDisk[]
}

/** Throws INVALID_ARGUMENT where nothing that is offered will do. */
export function choose(offered: readonly MigrationProtocol[], target: MigrationTarget | undefined): Choice {
  const replaced = Object.entries(target?.replaceComponents ?? {}).flatMap(([key, { file }]) =>
    file?.access === File_Access.READ_WRITE ? [[key, file.path] as const] : [],
  )
  for (const { qmeuBlock } of offered) {
    if (qmeuBlock === undefined) continue
    const { constraintHandover, constraintNbd, constraintTls, constraintWithBlockmigration } = qmeuBlock
    // Memory alone comes without this host's part of the machine.
    if (constraintHandover !== HANDOVER_VERSION || !constraintTls) continue
    if (!constraintWithBlockmigration && (replaced.length > 0 || constraintNbd.length > 0)) continue
    if (constraintNbd.length > MOST_DISKS) continue
    if (replaced.some(([key]) => !constraintNbd.some((each) => each.key === key))) continue
    const understood = { constraintHandover, constraintNbd, constraintTls, constraintWithBlockmigration }
    const disks = constraintNbd.flatMap(({ key, path, sizeBytes }) => {
      const isCopied = replaced.some(([other, there]) => other === key && there !== path)
      return isCopied ? [bulkDisk(key, Number(sizeBytes))] : []
    })
    return { protocol: Qemu.fromPartial(understood), disks }
  }
  const keys = replaced.map(([key]) => key)
  const withDisks =
    keys.length === 0 ? '' : `, and constraint_with_blockmigration with constraint_nbd of ${keys.join()}`
  throw new AgentError(
    'INVALID_ARGUMENT',
    `supported_migration_protocol: none that this host speaks, want qmeu_block with constraint_tls and constraint_handover ${HANDOVER_VERSION}${withDisks}`,
  )
}

/** More than a machine has. */
const MOST_DISKS = 256
