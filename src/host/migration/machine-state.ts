import { open } from 'node:fs/promises'
import { dirname } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { abortable } from '../../base/abort.ts'
import { AgentError } from '../../base/errors.ts'
import { buildAddon } from '../../build/native.ts'
import { loadNative } from '../../os/native.ts'
import type { QmpClient } from '../qemu/qmp/client.ts'

/** Where the memory is: in the file of the devices, or in a file of its own that QEMU does not touch. */
export type MemoryForm = 'stream' | 'file'

const FD_NAME = 'saved-machine'
/** A stopped guest has no use of the rest. */
const BANDWIDTH = 2 ** 40

/** Throws FAILED_PRECONDITION with QEMU's words when a device cannot be saved. */
export async function checkSavable(qmp: QmpClient, signal: AbortSignal): Promise<void> {
  const answer = await qmp.command({ execute: 'query-migrate', arguments: {} }, signal)
  const reasons = fieldOf(answer, 'blocked-reasons')
  const [first] = Array.isArray(reasons) ? reasons : []
  if (first !== undefined) throw new AgentError('FAILED_PRECONDITION', `QEMU: ${String(first)}`)
}

/** Writes the devices of a stopped machine to a new file. */
export async function saveDevices(
  qmp: QmpClient,
  { path, form, signal }: { readonly path: string; readonly form: MemoryForm; readonly signal: AbortSignal },
): Promise<void> {
  await using file = await open(path, 'wx', 0o600)
  await setUp(qmp, form, signal)
  const ended = migrated(qmp, signal)
  await pass(qmp, file.fd, signal)
  try {
    await qmp.command({ execute: 'migrate', arguments: { uri: `fd:${FD_NAME}` } }, signal)
    await ended.done
  } finally {
    ended.forget()
  }
}

/** Ends what {@link saveDevices} has begun, so that the machine can go on. */
export async function cancelSaving(qmp: QmpClient, signal: AbortSignal): Promise<void> {
  const answer = await qmp.command({ execute: 'query-migrate', arguments: {} }, signal)
  if (!['setup', 'active', 'device', 'pre-switchover'].includes(String(fieldOf(answer, 'status')))) return
  const ended = migrated(qmp, signal)
  await qmp.command({ execute: 'migrate_cancel', arguments: {} }, signal)
  await ended.done.catch(() => {})
  ended.forget()
}

/** Another process may have what QEMU has to take back. */
const GO_ON_TIMES = 4
const FIRST_PAUSE_MS = 100

/** Lets a machine go on as it was before it was saved, or could not be; tried again with growing pauses. */
export async function goOn(
  qmp: QmpClient,
  { wasRunning, signal }: { readonly wasRunning: boolean; readonly signal: AbortSignal },
): Promise<void> {
  const { status } = await qmp.execute('query-status', {}, signal)
  // QEMU takes its disks again, and can be saved again, only once it has run.
  if (!wasRunning && status !== 'postmigrate') return
  let pauseMs = FIRST_PAUSE_MS
  for (let left = GO_ON_TIMES; ; left--) {
    try {
      await qmp.execute('cont', {}, signal)
      break
    } catch (error) {
      if (left === 1 || qmp.isClosed || signal.aborted) throw error
    }
    await delay(pauseMs, undefined, { signal })
    pauseMs *= 4
  }
  if (!wasRunning) await qmp.execute('stop', {}, signal)
}

/** Gives a QEMU that waits for it the devices of a saved machine; it is paused then. */
export async function loadDevices(
  qmp: QmpClient,
  { path, form, signal }: { readonly path: string; readonly form: MemoryForm; readonly signal: AbortSignal },
): Promise<void> {
  await using file = await open(path, 'r')
  await setUp(qmp, form, signal)
  const ended = migrated(qmp, signal)
  await pass(qmp, file.fd, signal)
  try {
    await qmp.command({ execute: 'migrate-incoming', arguments: { uri: `fd:${FD_NAME}` } }, signal)
    await ended.done
  } finally {
    ended.forget()
  }
}

async function setUp(qmp: QmpClient, form: MemoryForm, signal: AbortSignal): Promise<void> {
  const capabilities = [
    { capability: 'events', state: true },
    { capability: 'x-ignore-shared', state: form === 'file' },
  ]
  await qmp.command({ execute: 'migrate-set-capabilities', arguments: { capabilities } }, signal)
  const parameters = { 'max-bandwidth': BANDWIDTH }
  await qmp.command({ execute: 'migrate-set-parameters', arguments: parameters }, signal)
}

async function pass(qmp: QmpClient, fd: number, signal: AbortSignal): Promise<void> {
  const native = loadNative(dirname(await buildAddon()))
  await qmp.pass({ execute: 'getfd', arguments: { fdname: FD_NAME } }, { native, fd }, signal)
}

/** The end of a migration, by the events of QEMU. */
function migrated(qmp: QmpClient, signal: AbortSignal) {
  const over = new AbortController()
  const seen = qmp.event(
    ({ name, data }) => name === 'MIGRATION' && ENDS.includes(String(data.status)),
    AbortSignal.any([signal, over.signal]),
  )
  const done = abortable(seen, signal).then(async ({ data }) => {
    if (data.status === 'completed') return
    const answer = await qmp.command({ execute: 'query-migrate', arguments: {} }, signal)
    const words = fieldOf(answer, 'error-desc') ?? data.status
    throw new AgentError('FAILED_PRECONDITION', `QEMU: ${String(words)}`)
  })
  done.catch(() => {})
  return { done, forget: () => over.abort() }
}

const ENDS: readonly string[] = ['completed', 'failed', 'cancelled']

function fieldOf(answer: unknown, name: string): unknown {
  return typeof answer === 'object' && answer !== null ? Reflect.get(answer, name) : undefined
}
