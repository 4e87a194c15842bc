import { existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { buildParts } from './vminit/compiled.ts'
import { run } from './vminit/supervised.ts'

let parts: string

beforeAll(async () => {
  parts = await buildParts()
})

describe('the kernel command line', () => {
  it.each([
    ['', '|||ro'],
    ['quiet root=/dev/vda rootfstype=erofs ro', '/dev/vda|erofs||ro'],
    ['root=/dev/vda rw rootflags=noload,data=journal\n', '/dev/vda||noload,data=journal|rw'],
    ['root=/dev/vda rw root=/dev/vdb ro', '/dev/vdb|||ro'],
    ['agent.log="a root=/dev/vdz b" rootflags="a b" "root=/dev/vda"', '/dev/vda||a b|ro'],
    ['noroot=/dev/vda rows xroot=1', '|||ro'],
  ])('%j has the root options %j', async (line, options) => {
    expect((await run([parts, 'root-options', line])).stdout).toBe(`${options}\n`)
  })

  it('says so when a value is too long to be taken', async () => {
    const { stderr } = await run([parts, 'root-options', `root=/dev/${'x'.repeat(300)}`])
    expect(stderr).toMatch(/^vminit: kernel command line: root=\/dev\/x+… is longer than 255 bytes\n$/)
  })
})

describe('the delay before a restart', () => {
  it.each([
    [
      [0, 1000, 2000, 3000, 4000, 5000],
      [0, 100, 200, 400, 800, -1],
    ],
    [
      [0, 30_000, 60_000, 90_001, 120_002, 150_003],
      [0, 100, 200, 100, 100, 100],
    ],
    [
      [0, 0, 0, 0, 0, 60_001],
      [0, 100, 200, 400, 800, 0],
    ],
  ])('after deaths at %j ms is %j ms', async (times, delays) => {
    const { stdout } = await run([parts, 'restart-delays', ...times.map(String)])
    expect(stdout.trim().split(' ').map(Number)).toEqual(delays)
  })
})

describe('deleting the initramfs', () => {
  let folder: string

  beforeEach(async () => {
    folder = mkdtempSync(join(tmpdir(), 'vminit-'))
    mkdirSync(join(folder, 'initramfs/mounted'), { recursive: true })
    mkdirSync(join(folder, 'outside'))
    await run(['mount', '-t', 'tmpfs', 'tmpfs', join(folder, 'initramfs/mounted')])
  })
  afterEach(async () => {
    await run(['umount', join(folder, 'initramfs/mounted')])
    rmSync(folder, { recursive: true })
  })

  it('neither enters another file system nor follows a link', async () => {
    const initramfs = join(folder, 'initramfs')
    mkdirSync(join(initramfs, 'modules/deep'), { recursive: true })
    writeFileSync(join(initramfs, 'modules/deep/one.ko'), '')
    writeFileSync(join(initramfs, 'mounted/kept'), '')
    writeFileSync(join(folder, 'outside/kept'), '')
    symlinkSync(join(folder, 'outside'), join(initramfs, 'link'))
    expect(await run([parts, 'delete-initramfs', initramfs])).toMatchObject({ status: 0 })
    expect(readdirSync(initramfs)).toEqual(['mounted'])
    expect(existsSync(join(initramfs, 'mounted/kept'))).toBe(true)
    expect(existsSync(join(folder, 'outside/kept'))).toBe(true)
  })
})
