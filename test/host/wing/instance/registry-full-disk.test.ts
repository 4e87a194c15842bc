import { execFileSync } from 'node:child_process'
import {
  existsSync,
  mkdtempSync,
  readdirSync,
  rmdirSync,
  rmSync,
  statfsSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { openRegistry, rebuildRegistry } from '../../../../src/host/instance/registry/open-registry.ts'
import type { Change } from '../../../../src/host/instance/registry/registry.ts'
import { RESERVE_BYTES } from '../../../../src/host/instance/registry/reserve.ts'

// Not among the temporary folders: those of dead runs are swept, which a mount would prevent.
const folder = mkdtempSync('/run/registry-full-disk-')
const filler = join(folder, 'filler')

beforeAll(() => {
  execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=2m,mode=700', 'tmpfs', folder])
})

afterAll(() => {
  // Lazily, because a registry of a test that has failed may be open.
  execFileSync('umount', ['-l', folder])
  rmdirSync(folder)
})

it('refuses commits on a full disk as a whole, and takes them once there is room', async () => {
  const first = await openRegistry(folder)
  await first.commit([put('a', 10), put('b', 10)])
  // There is room for the first change of each commit.
  fillDisk(32_768)
  for (const bytes of [100_000, 500_000]) {
    const commits = [first.commit([put('a', 20), put('c', bytes)]), first.commit([put('d', 10)])]
    for (const result of await Promise.allSettled(commits)) {
      expect(result).toMatchObject({
        status: 'rejected',
        reason: { code: 'RESOURCE_EXHAUSTED', errno: 'ENOSPC' },
      })
    }
  }
  expect(await sizes(first)).toEqual({ a: 10, b: 10 })

  rmSync(filler)
  await first.commit([put('c', 100_000), put('b', undefined)])
  expect(await sizes(first)).toEqual({ a: 10, c: 100_000 })
  await first.close()
  const second = await openRegistry(folder)
  expect(await sizes(second)).toEqual({ a: 10, c: 100_000 })
  await second.close()
})

it('loses nothing when it is closed on a full disk', async () => {
  const first = await openRegistry(folder)
  await first.commit([put('kept', 50_000)])
  fillDisk()
  await expect(first.commit([put('refused', 200_000)])).rejects.toMatchObject({ code: 'RESOURCE_EXHAUSTED' })
  await first.close()
  const second = await openRegistry(folder)
  const found = await sizes(second)
  expect(found).toMatchObject({ kept: 50_000 })
  expect(Object.keys(found)).not.toContain('refused')
  await second.close()
  rmSync(filler)
})

it('takes what frees by its reserve on a full disk, again and again', async () => {
  const registry = await openRegistry(folder)
  await registry.commit([put('a', 1000)])
  for (let count = 0; count < 20; count += 1) {
    fillDisk()
    const refused = registry.commit([put(`r${count}`, 30_000)])
    const taken = registry.commit([put('a', undefined), put(`t${count}`, 10)], { frees: true })
    await expect(refused).rejects.toMatchObject({ code: 'RESOURCE_EXHAUSTED' })
    await taken
    expect(statSync(join(folder, 'registry.reserve'))).toMatchObject({ size: RESERVE_BYTES, mode: 0o100600 })
  }
  const found = await sizes(registry)
  expect([found.a, found.t19, found.r19]).toEqual([undefined, 10, undefined])
  await registry.close()
  rmSync(filler)
})

it('starts without a reserve on a full disk', async () => {
  rmSync(join(folder, 'registry.reserve'))
  fillDisk(RESERVE_BYTES / 2)
  const first = await openRegistry(folder)
  expect(existsSync(join(folder, 'registry.reserve'))).toBe(false)
  await first.close()
  rmSync(filler)
})

it('keeps the old registry when there is no room for a new one', async () => {
  fillDisk()
  const before = readdirSync(folder).toSorted()
  await expect(rebuildRegistry(folder)).rejects.toThrow(/registry\.sqlite\.new: /)
  rmSync(filler)
  expect(before).toContain('registry.sqlite')
  const registry = await openRegistry(folder)
  expect(await sizes(registry)).toMatchObject({ kept: 50_000 })
  await registry.close()
  await rebuildRegistry(folder)
})

function fillDisk(roomBytes = 0): void {
  const { bfree, bsize } = statfsSync(folder)
  const present = statSync(filler, { throwIfNoEntry: false })?.size ?? 0
  writeFileSync(filler, Buffer.alloc(present + bfree * bsize - roomBytes))
}

function put(key: string, bytes: number | undefined): Change {
  return { table: 'steps', key, payload: bytes === undefined ? undefined : new Uint8Array(bytes) }
}

async function sizes(registry: Awaited<ReturnType<typeof openRegistry>>): Promise<Record<string, number>> {
  return Object.fromEntries([...(await registry.load('steps'))].map(([key, { length }]) => [key, length]))
}
