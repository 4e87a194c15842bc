import { execFileSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { beforeAll, describe, expect, it } from 'vitest'
import { buildAgent } from '../../../src/build/agent.ts'
import { ensureContainerRoot } from '../../../src/image/container-root.ts'
import { ensureImage, type GuestImage, stageOneTree } from '../../../src/image/ensure-image.ts'
import { writeCpio } from '../../../src/image/formats/cpio.ts'
import { writeErofs, writeExt4 } from '../../../src/image/formats/file-systems.ts'
import { directory, fileOf, link, type TreeEntry } from '../../../src/image/formats/tree.ts'
import { currentFileList, fileList, guestTree } from '../../../src/image/guest-tree.ts'
import { ensureKernel } from '../../../src/image/kernel/kernel.ts'
import { compareGlibc, highestGlibc, LIBRARIES } from '../../../src/image/libraries.ts'
import { DEFAULT_KERNEL } from '../../../src/image/packages.ts'
import { lackOf } from '../../../src/image/runtimes.ts'
import { guestPackages, userlandFolder } from '../../../src/image/userland.ts'
import { noPolicyAddon, policyAddonFolder } from '../../support/os/policy-addon.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

const silent = () => {}
/** Debian 12's glibc: the agent's folder and the policy engine also go into such roots. */
const DEBIAN_12 = '2.36'
const noEngine = (await noPolicyAddon()) !== undefined
let folder: string
let image: GuestImage

beforeAll(async () => {
  folder = temporaryFolder()
  image = await ensureImage({ progress: silent })
}, 600_000)

describe('ensureImage', () => {
  it('reuses what it built before, and prints nothing', async () => {
    const lines: string[] = []
    const again = await ensureImage({ progress: (line) => lines.push(line) })
    expect({ again, lines }).toEqual({ again: image, lines: [] })
  })

  it('makes a first stage of at most 3 MB', () => {
    expect(statSync(image.initrd).size).toBeLessThanOrEqual(3_000_000)
  })

  it('holds what is recorded in rootfs/files.txt (record it anew with: node scripts/record-files.ts)', async () => {
    expect(await currentFileList(silent)).toBe(readFileSync(fileList, 'utf8'))
  })

  it('has busybox as a shell when it is asked for, and is the same besides', async () => {
    const kernel = await ensureKernel(DEFAULT_KERNEL, silent)
    const plain = await guestTree(kernel, { progress: silent })
    const { base, agent } = await guestTree(kernel, { debugShell: true, progress: silent })
    const added = agent.filter(({ path }) => !plain.agent.some((entry) => entry.path === path))
    expect(added).toMatchObject([
      { path: 'usr/bin/busybox', kind: 'file', mode: 0o755 },
      { path: 'usr/bin/sh', kind: 'link', target: 'busybox' },
    ])
    expect({ base, agent }).toEqual({ base: plain.base, agent: [...plain.agent, ...added] })
  })

  it('gives the same bytes for the same inputs', async () => {
    const kernel = await ensureKernel(DEFAULT_KERNEL, silent)
    const { base, agent, vminit } = await guestTree(kernel, { progress: silent })
    const root = join(folder, 'root.erofs')
    await writeErofs(root, [...base, ...agent])
    const initrd = join(folder, 'initrd')
    writeCpio(initrd, stageOneTree(kernel, vminit))
    expect([sha256(root), sha256(initrd)]).toEqual([sha256(image.root?.path ?? ''), sha256(image.initrd)])
  })

  it('has every library that a program of the image needs', async () => {
    const kernel = await ensureKernel(DEFAULT_KERNEL, silent)
    const { base, agent } = await guestTree(kernel, { progress: silent })
    const names = new Set([...base, ...agent].map((entry) => entry.path.split('/').at(-1)))
    expect(neededLibraries([...base, ...agent]).filter((soname) => !names.has(soname))).toEqual([])
  })
})

describe('what is built here for roots that others made', () => {
  it.each(['addon.node', 'node'])('has a %s that runs with the C library of Debian 12', async (name) => {
    expect(compareGlibc(await highestGlibc([join(await buildAgent(), name)]), DEBIAN_12)).toBeLessThan(1)
  })

  it.skipIf(noEngine)('has a policy.node that runs with the C library of Debian 12', async () => {
    const engine = join(await policyAddonFolder(), 'policy.node')
    expect(compareGlibc(await highestGlibc([engine]), DEBIAN_12)).toBeLessThan(1)
  })
})

describe('highestGlibc', () => {
  it('reads what a library has, and what a program needs', async () => {
    const libraries = join(await userlandFolder(silent), LIBRARIES)
    expect(await highestGlibc([join(libraries, 'libc.so.6')])).toBe('2.41')
    expect(await highestGlibc([join(libraries, '../../sbin/runc')])).toBe('2.38')
  })
})

describe('a crun that is not the locked one', () => {
  it('is for the image only with the libraries that the image has', async () => {
    const packages = await guestPackages(silent)
    const crun = packages
      .filter(({ suite }) => suite === 'forky')
      .map((each) => ({ ...each, version: '9.9' }))
    const base = packages.filter(({ suite }) => suite !== 'forky')
    expect(await lackOf('crun', crun, base)).toBeUndefined()
    const without = base.filter(({ name }) => name !== 'libjson-c5')
    expect(await lackOf('crun', crun, without)).toBe('libjson-c.so.5: in no package, but crun needs it')
  })
})

describe('ensureContainerRoot', () => {
  it('is a clean ext4 image with busybox behind every applet', async () => {
    const path = await ensureContainerRoot(silent)
    execFileSync('/usr/sbin/e2fsck', ['-fn', path], { stdio: 'pipe' })
    expect(debugfs(path, 'stat /bin/sh')).toContain('Fast link dest: "busybox"')
    expect(debugfs(path, 'stat /bin/busybox')).toMatch(/Mode: {2}0755/)
    expect(debugfs(path, 'stat /tmp')).toMatch(/Mode: {2}01777/)
    expect(debugfs(path, 'cat /etc/passwd')).toContain('root:x:0:0')
  })
})

describe('writeExt4', () => {
  it('gives the same bytes for the same tree at another time', async () => {
    const tree = [directory('tmp', 0o1777), fileOf('etc/hostname', 'x\n'), link('etc/h', 'hostname')]
    const options = { freeBytes: 2 ** 20, label: 'test' }
    await writeExt4(join(folder, 'one'), tree, options)
    // The file system stores times in seconds: the second image is made in a later second.
    const secondsNow = () => Math.floor(Date.now() / 1000)
    await expect.poll(secondsNow).toBeGreaterThan(secondsNow())
    await writeExt4(join(folder, 'two'), tree, options)
    expect(sha256(join(folder, 'two'))).toBe(sha256(join(folder, 'one')))
  })
})

function sha256(path: string): string {
  return createHash('sha256').update(readFileSync(path)).digest('hex')
}

function debugfs(image: string, command: string): string {
  return execFileSync('/usr/sbin/debugfs', ['-R', command, image], { encoding: 'utf8', stdio: 'pipe' })
}

function neededLibraries(tree: readonly TreeEntry[]): readonly string[] {
  const programs = tree.flatMap((entry) =>
    entry.kind === 'file' && entry.mode === 0o755 && 'source' in entry.content ? [entry.content.source] : [],
  )
  const dynamic = execFileSync('readelf', ['--dynamic', '--wide', ...programs], { encoding: 'utf8' })
  return Array.from(dynamic.matchAll(/\(NEEDED\).*\[(.+)\]/g), (match) => match[1] ?? '')
}
