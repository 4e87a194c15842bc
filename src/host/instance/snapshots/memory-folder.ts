import { existsSync } from 'node:fs'
import { readdir, rename, rm, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { errnoOf } from '../../../base/errors.ts'
import type { InstanceRecord } from '../../../gen/microvm/instance/v1/records.ts'

/** In an instance's folder: the memories of snapshots, each in a folder by the name of its snapshot. */
const MEMORIES = 'memories'
/** Begins the names of what is being made or removed. No name of a snapshot begins so. */
const WORK = '+'
const OLD = `${WORK}old-`

export function memoryFolder(folder: string, snapshot: string): string {
  return join(folder, MEMORIES, snapshot)
}

/** Whether there is a memory, which gets its name once it is whole. */
export async function isMemoryKept(folder: string, snapshot: string): Promise<boolean> {
  return await stat(memoryFolder(folder, snapshot)).then(
    () => true,
    () => false,
  )
}

/** What a memory takes of the host's disk; 0 for one that is not there. */
export async function usedByMemory(folder: string, snapshot: string): Promise<bigint> {
  const path = memoryFolder(folder, snapshot)
  const files = await readdir(path, { recursive: true }).catch(() => [])
  const blocks = files.map(async (name) => (await stat(join(path, name)).catch(() => undefined))?.blocks ?? 0)
  return BigInt((await Promise.all(blocks)).reduce((sum, each) => sum + each, 0) * STAT_BLOCK)
}

/** The unit of `stat.blocks` (stat(2)). */
export const STAT_BLOCK = 512

/** Takes the memories of snapshots away while `forget` forgets these; when that fails, they are back. */
export async function withoutMemories(
  folder: string,
  snapshots: readonly string[],
  forget: () => Promise<void>,
): Promise<void> {
  const moved = snapshots.map((name) => ({
    path: memoryFolder(folder, name),
    away: memoryFolder(folder, `${OLD}${name}`),
  }))
  const ignoreMissing = (error: unknown) => {
    if (errnoOf(error) !== 'ENOENT') throw error
  }
  try {
    for (const { path, away } of moved) await rename(path, away).catch(ignoreMissing)
    await forget()
  } catch (error) {
    for (const { path, away } of moved) await rename(away, path).catch(ignoreMissing)
    throw error
  }
  for (const { away } of moved) await rm(away, { recursive: true, force: true })
}

/**
 * Removes what was being made or removed, but for the memories of snapshots that the record still has. To be called in a change, while
 * no snapshot is being taken.
 */
export async function settleMemories(
  folder: string,
  record: Pick<InstanceRecord, 'snapshots'>,
): Promise<void> {
  const memories = join(folder, MEMORIES)
  // As in `refuseUnknown`.
  const names: readonly string[] = existsSync(memories) ? await readdir(memories).catch(() => []) : []
  for (const name of names.filter((each) => each.startsWith(WORK))) {
    const path = memoryFolder(folder, name)
    const snapshot = withMemory(record).find((each) => name === `${OLD}${each.name}`)
    if (snapshot === undefined || names.includes(snapshot.name))
      await rm(path, { recursive: true, force: true })
    else await rename(path, memoryFolder(folder, snapshot.name))
  }
}

/** The snapshots of a record that have memory. */
export function withMemory({ snapshots }: Pick<InstanceRecord, 'snapshots'>): InstanceRecord['snapshots'] {
  return snapshots.filter(({ memory }) => memory)
}
