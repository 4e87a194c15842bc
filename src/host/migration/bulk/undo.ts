import { setTimeout as delay } from 'node:timers/promises'
import { goOn } from '../machine-state.ts'
import { type BulkQemu, IS_DISK, NAMES } from './bulk.ts'
import { IN_PROGRESS } from './channel-wait.ts'
import { stopMirror } from './mirror-job.ts'
import { removeTls } from './tls.ts'

/** How long QEMU may take to cancel a migration. */
const CANCEL_MS = 10_000
const LOOK_MS = 20

/**
 * Takes back what the bulk of a move has left in a QEMU, by its names: also that of another daemon, and again. With `source`, the
 * guest goes on as it was. Does nothing in a QEMU that has ended. Rejects with the first failure, after all has been tried.
 */
export async function undoBulk(
  qemu: BulkQemu,
  { source }: { readonly source?: { readonly wasRunning: boolean } } = {},
): Promise<void> {
  const { qmp, signal } = qemu
  const failures: unknown[] = []
  const steps = [cancelMemory, cancelMirrors, removeExports, closeGiven, setBack, removeTls]
  for (const undo of steps) {
    if (qmp.isClosed) return
    await undo(qemu).catch((error) => failures.push(error))
  }
  if (source !== undefined && !qmp.isClosed)
    await goOn(qmp, { ...source, signal }).catch((error) => failures.push(error))
  if (failures.length > 0 && !qmp.isClosed) throw failures[0]
}

async function cancelMemory({ qmp, signal }: BulkQemu): Promise<void> {
  const limit = AbortSignal.any([signal, AbortSignal.timeout(CANCEL_MS)])
  const isOver = async () => {
    const { status = '' } = await qmp.execute('query-migrate', {}, limit)
    return !IN_PROGRESS.includes(status)
  }
  if (await isOver()) return
  await qmp.execute('migrate_cancel', {}, limit)
  while (!(await isOver())) await delay(LOOK_MS, undefined, { signal: limit })
}

/** The guest stands still meanwhile, as {@link stopMirror} wants it. QEMU waits for no target that does not answer. */
async function cancelMirrors({ qmp, signal }: BulkQemu): Promise<void> {
  const mirrors = (await qmp.execute('query-block-jobs', {}, signal)).filter(({ device }) =>
    IS_DISK.test(device),
  )
  if (mirrors.length > 0) {
    for (const { device } of mirrors) await yank({ qmp, signal }, device)
    const { running } = await qmp.execute('query-status', {}, signal)
    if (running) await qmp.execute('stop', {}, signal)
    try {
      for (const { device } of mirrors) await stopMirror({ qmp, signal }, device)
    } finally {
      if (running) await qmp.execute('cont', {}, signal)
    }
  }
  await removeTargets({ qmp, signal })
}

/** Ends the connection of a disk's node. QEMU refuses that for a node whose connection has ended. */
async function yank({ qmp, signal }: Pick<BulkQemu, 'qmp' | 'signal'>, node: string): Promise<void> {
  const instances = [{ type: 'block-node', 'node-name': node } as const]
  await qmp.execute('yank', { instances }, signal).catch(() => signal.throwIfAborted())
}

/** Removes the nodes of the exports, which no mirror uses any more. */
export async function removeTargets({ qmp, signal }: Pick<BulkQemu, 'qmp' | 'signal'>): Promise<void> {
  const nodes = await qmp.execute('query-named-block-nodes', { flat: true }, signal)
  for (const { 'node-name': name } of nodes)
    if (IS_DISK.test(name)) await qmp.execute('blockdev-del', { 'node-name': name }, signal)
}

/** Ends QEMU's NBD server, if it has disks of a move. */
export async function removeExports({ qmp, signal }: BulkQemu): Promise<void> {
  const exports = await qmp.execute('query-block-exports', {}, signal)
  const isOurs = exports.some(({ id }) => IS_DISK.test(id))
  await qmp.execute('nbd-server-stop', {}, signal).catch((error) => {
    if (isOurs) throw error
  })
}

/** Descriptors that no command has taken. */
async function closeGiven({ qmp, signal }: BulkQemu): Promise<void> {
  for (const fdname of [NAMES.listener, NAMES.memory])
    await qmp.command({ execute: 'closefd', arguments: { fdname } }, signal).catch(() => {})
}

/** What QEMU has by itself: it keeps all for the next migration, which may be into a file. */
async function setBack({ qmp, signal }: BulkQemu): Promise<void> {
  const { status } = await qmp.execute('query-status', {}, signal)
  if (status === 'inmigrate') return
  const capabilities = ['pause-before-switchover', 'late-block-activate', 'auto-converge', 'return-path'].map(
    (capability) => ({ capability, state: false }),
  )
  await qmp.execute('migrate-set-capabilities', { capabilities }, signal)
  await qmp.execute('migrate-set-parameters', OWN_PARAMETERS, signal)
}

/** QEMU's own (migration/migration.c). */
const OWN_PARAMETERS = {
  'tls-creds': '',
  'tls-hostname': '',
  'tls-authz': '',
  'max-bandwidth': 128 * 2 ** 20,
  'downtime-limit': 300,
  'max-cpu-throttle': 99,
} as const
