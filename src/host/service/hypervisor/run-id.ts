import { randomUUID } from 'node:crypto'
import { open, readFile, rename } from 'node:fs/promises'
import { join } from 'node:path'
import { AgentError, errnoOf } from '../../../base/errors.ts'
import { failed, fromNodeError } from '../../../os/errors.ts'

const MAX_ID = 2n ** 64n - 1n

/**
 * The id of this run: nanoseconds since 1970, and always greater than those of the runs before in this folder, whatever
 * the clock says. It is durable when this returns. The folder must be this process's alone.
 */
export async function nextRunId(folder: string, nowNs: bigint): Promise<bigint> {
  const path = join(folder, 'run-id')
  const last = await lastRunId(path)
  if (last >= MAX_ID)
    throw new AgentError('FAILED_PRECONDITION', `${path}: no greater number is left, want it removed`)
  const id = nowNs > last ? nowNs : last + 1n
  await writeDurably(folder, 'run-id', `${id}\n`)
  return id
}

/**
 * Names the processes of this folder, one after the other, for controllers: those of another folder may run at the same time. It
 * is durable when this returns. The folder must be this process's alone.
 */
export async function podId(folder: string): Promise<string> {
  const path = join(folder, 'pod-id')
  const present = await readText(path)
  if (present === undefined) {
    const id = randomUUID()
    await writeDurably(folder, 'pod-id', `${id}\n`)
    return id
  }
  if (/^[0-9a-f-]{36}\s*$/.test(present)) return present.trim()
  throw new AgentError('FAILED_PRECONDITION', `${path}: not the id of a pod, want it removed or repaired`)
}

async function writeDurably(folder: string, name: string, text: string): Promise<void> {
  const path = join(folder, name)
  const report = failed('write', path)
  const file = await open(`${path}.new`, 'w', 0o600).catch(report)
  try {
    await file.writeFile(text).catch(report)
    await file.sync().catch(report)
  } finally {
    await file.close()
  }
  await rename(`${path}.new`, path).catch(report)
  const parent = await open(folder, 'r').catch(report)
  await parent.sync().finally(() => parent.close())
}

async function lastRunId(path: string): Promise<bigint> {
  const text = (await readText(path)) ?? '0'
  if (/^\d{1,20}\s*$/.test(text)) return BigInt(text.trim())
  throw new AgentError('FAILED_PRECONDITION', `${path}: not the id of a run, want it removed or repaired`)
}

async function readText(path: string): Promise<string | undefined> {
  return await readFile(path, 'utf8').catch((error: unknown) => {
    if (errnoOf(error) === 'ENOENT') return undefined
    throw fromNodeError('read', path, error)
  })
}
