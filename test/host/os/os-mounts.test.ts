import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import {
  closeSync,
  existsSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  readSync,
  rmdirSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
  writeSync,
} from 'node:fs'
import { hostname } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { buildAgent } from '../../../src/build/agent.ts'
import type { Files } from '../../../src/os/files/files.ts'
import { linuxFiles } from '../../../src/os/files/linux-files.ts'
import { linuxMounts } from '../../../src/os/files/linux-mounts.ts'
import type { MountFlag, Mounts } from '../../../src/os/files/mounts.ts'
import type { Native } from '../../../src/os/native.ts'
import { linuxTools } from '../../../src/os/process/linux-tools.ts'
import { linuxStreams } from '../../../src/os/streams/linux-streams.ts'
import { FakeFiles } from '../../support/fakes/files/fake-files.ts'
import { FakeMounts } from '../../support/fakes/files/fake-mounts.ts'
import { noLongOverlays } from '../../support/os/no-long-overlays.ts'
import { realNative } from '../../support/os/real-native.ts'
import { ownDescriptors } from '../../support/processes.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

let native: Native
let mounts: Mounts
let files: Files
let folder: string

async function mountParts() {
  const tools = linuxTools(native, linuxStreams(native))
  return { native, tools, vminit: join(await buildAgent(), 'vminit') }
}

beforeEach(async () => {
  native = await realNative()
  mounts = linuxMounts(await mountParts())
  files = linuxFiles(native)
  folder = temporaryFolder()
  await mounts.mount({
    source: 'tmpfs',
    target: folder,
    type: 'tmpfs',
    flags: ['nosuid', 'nodev'],
    data: 'size=1m',
  })
})
afterEach(async () => {
  for (const mountPoint of (await mountPointsBelow()).reverse()) await mounts.unmount(mountPoint)
  rmdirSync(folder)
})

async function mountPointsBelow(): Promise<string[]> {
  const entries = await mounts.list()
  return entries.map(({ mountPoint }) => mountPoint).filter((path) => path.startsWith(folder))
}

function bind(source: string, target: string): Promise<void> {
  return mounts.mount({ source, target, type: '', flags: ['bind'], data: '' })
}

/** A fake with a file system at `folder`, as on Linux. */
async function fakeMounts(): Promise<readonly [Mounts, Pick<Files, 'makeDirectories' | 'symlink'>]> {
  const fake = new FakeMounts()
  const fakeFiles = new FakeFiles(fake)
  await fakeFiles.makeDirectories(folder)
  await fake.mount({ source: 'tmpfs', target: folder, type: 'tmpfs', flags: [], data: '' })
  return [fake, fakeFiles]
}

describe.each([
  ['linuxMounts', async () => [mounts, files] as const],
  ['FakeMounts', fakeMounts],
])('%s', (_name, build) => {
  it('lists mounts in their order, each with its parent, and unmounts the topmost of a place', async () => {
    const [mounts, files] = await build()
    const [outer, inner] = [join(folder, 'outer'), join(folder, 'outer/inner')]
    await files.makeDirectories(outer)
    const mount = (target: string, source: string, flags: readonly MountFlag[] = []) =>
      mounts.mount({ source, target, type: 'tmpfs', flags, data: '' })
    await mount(outer, 'first')
    await mount(outer, 'second', ['ro', 'noexec'])
    await mount(outer, 'third')
    await files.makeDirectories(inner)
    await mount(inner, 'fourth')
    const listed = async () => (await mounts.list()).filter(({ mountPoint }) => mountPoint.startsWith(outer))
    const [first, second, third, fourth] = await listed()
    expect([first, second, third, fourth]).toMatchObject([
      { mountPoint: outer, source: 'first', type: 'tmpfs', options: expect.stringMatching(/^rw\b/) },
      { source: 'second', parentId: first?.id, options: expect.stringMatching(/^ro,noexec\b/) },
      { source: 'third', parentId: second?.id },
      { mountPoint: inner, source: 'fourth', parentId: third?.id },
    ])
    expect(new Set([first, second, third, fourth].map((each) => `${each?.major}:${each?.minor}`)).size).toBe(
      4,
    )
    const busy = { code: 'INTERNAL', errno: 'EBUSY', message: `unmount ${outer}: EBUSY` }
    await expect(mounts.unmount(outer)).rejects.toMatchObject(busy)
    for (const target of [inner, outer]) await mounts.unmount(target)
    expect((await listed()).map(({ source }) => source)).toEqual(['first', 'second'])
    for (const _ of ['second', 'first']) await mounts.unmount(outer)
    await expect(mounts.unmount(outer)).rejects.toMatchObject({ errno: 'EINVAL' })
  })

  it('changes a mount without a new one, and binds with the type of the source', async () => {
    const [mounts, files] = await build()
    const [target, bound] = [join(folder, 'target'), join(folder, 'bound')]
    for (const path of [target, bound]) await files.makeDirectories(path)
    await mounts.mount({ source: 'a', target, type: 'tmpfs', flags: [], data: '' })
    for (const flags of [['remount', 'bind', 'ro'], ['private'], ['shared']] as const) {
      await mounts.mount({ source: '', target, type: '', flags, data: '' })
    }
    await mounts.mount({ source: target, target: bound, type: '', flags: ['bind'], data: '' })
    const below = (await mounts.list()).filter(({ mountPoint }) => mountPoint.startsWith(`${folder}/`))
    expect(below.map(({ mountPoint, type }) => [mountPoint, type])).toEqual([
      [target, 'tmpfs'],
      [bound, 'tmpfs'],
    ])
  })

  it('mounts only at paths without links, when links are refused', async () => {
    const [mounts, files] = await build()
    const [target, link] = [join(folder, 'target'), join(folder, 'link')]
    await files.makeDirectories(target)
    await files.symlink('target', link)
    const request = { source: 'a', target: link, type: 'tmpfs', flags: [], data: '' }
    await expect(mounts.mount({ ...request, refuseLinks: true })).rejects.toMatchObject({ errno: 'ELOOP' })
    await mounts.mount({ ...request, target, refuseLinks: true })
    expect((await mounts.list()).filter(({ mountPoint }) => mountPoint === target)).toHaveLength(1)
  })

  it('names a process that is gone', async () => {
    const [mounts] = await build()
    await expect(mounts.isMounted(4194305, '/')).rejects.toMatchObject({ errno: 'ENOENT' })
  })
})

describe('linuxMounts', () => {
  it('unmounts what is in use for a moment, and reports what stays in use', async () => {
    const inner = join(folder, 'inner')
    mkdirSync(inner)
    await mounts.mount({ source: 'tmpfs', target: inner, type: 'tmpfs', flags: [], data: 'size=1m' })
    const user = spawn('sh', ['-c', 'cd "$0" && echo in && read line', inner], {
      stdio: ['pipe', 'pipe', 'inherit'],
    })
    await once(user.stdout, 'data')
    await expect(mounts.unmount(inner)).rejects.toMatchObject({ errno: 'EBUSY' })
    const unmounted = mounts.unmount(inner)
    user.stdin.end()
    await unmounted
    expect(await mountPointsBelow()).toEqual([folder])
  })

  it('unmounts a file system with a server from a process of its own, its last mount and others', async () => {
    const server = openSync('/dev/fuse', 'r+')
    const [served, bound] = [join(folder, 'served'), join(folder, 'bound')]
    for (const path of [served, bound]) mkdirSync(path)
    const data = `fd=${server},rootmode=40000,user_id=0,group_id=0`
    await mounts.mount({ source: 'dead', target: served, type: 'fuse', flags: ['nosuid', 'nodev'], data })
    await bind(served, bound)
    await mounts.unmount(bound)
    await expect(mounts.unmount(bound)).rejects.toThrow(`unmount ${bound}: EINVAL`)
    await mounts.unmount(served)
    closeSync(server)
    expect(await mountPointsBelow()).toEqual([folder])
  })

  it('waits only for its limit for a server that does not answer, and then removes the mount from the table', async () => {
    const [disk, target] = [join(folder, 'disk'), join(folder, 'served')]
    mkdirSync(target)
    writeFileSync(disk, '')
    truncateSync(disk, 65_536)
    const loop = execFileSync('losetup', ['--find', '--show', disk], { encoding: 'utf8' }).trim()
    const server = openSync('/dev/fuse', 'r+')
    try {
      const data = `fd=${server},rootmode=40000,user_id=0,group_id=0`
      await mounts.mount({ source: loop, target, type: 'fuseblk', flags: ['nosuid', 'nodev'], data })
      answerInit(server)
      const impatient = linuxMounts({ ...(await mountParts()), unmountMs: 1000 })
      await expect(impatient.unmount(target)).rejects.toMatchObject({
        code: 'DEADLINE_EXCEEDED',
        message: `unmount ${target}: ETIMEDOUT: its server or disk has not answered for 1 s`,
      })
      expect(await mountPointsBelow()).toEqual([folder])
      await expect(mounts.unmount(target)).rejects.toMatchObject({ errno: 'EINVAL' })
    } finally {
      closeSync(server)
      execFileSync('losetup', ['--detach', loop])
    }
  })

  it('pins a new ipc and uts namespace with a host name, and stays in its own', async () => {
    const before = hostname()
    const [ipc, uts] = [join(folder, 'ipc'), join(folder, 'uts')]
    for (const path of [ipc, uts]) writeFileSync(path, '')
    await mounts.pinNamespaces({ ipc, uts, hostname: '-a_b c' })
    const inside = ['--ipc=', '--uts='].map((word, index) => word + [ipc, uts][index])
    const script = 'hostname; readlink /proc/self/ns/ipc /proc/self/ns/uts'
    const seen = execFileSync('nsenter', [...inside, 'sh', '-c', script], { encoding: 'utf8' })
    const [name, ...namespaces] = seen.trim().split('\n')
    expect(name).toBe('-a_b c')
    for (const kind of ['ipc', 'uts']) expect(namespaces).not.toContain(readlinkSync(`/proc/self/ns/${kind}`))
    for (const thread of readdirSync('/proc/self/task')) {
      expect(namespaces).not.toContain(readlinkSync(`/proc/self/task/${thread}/ns/uts`))
    }
    expect(hostname()).toBe(before)

    await mounts.unmount(uts)
    await mounts.pinNamespaces({ ipc, uts, hostname: '' })
    const unnamed = execFileSync('nsenter', [`--uts=${uts}`, 'hostname'], { encoding: 'utf8' })
    expect(unnamed.trim()).toBe(before)
    await expect(mounts.pinNamespaces({ ipc, uts: `${uts}/none`, hostname: '' })).rejects.toThrow('ENOTDIR')
    await expect(mounts.pinNamespaces({ ipc, uts, hostname: 'x'.repeat(65) })).rejects.toThrow('EINVAL')
  })

  it('mounts with flags and data, lists, remounts and unmounts', async () => {
    const target = join(folder, 'a place with spaces')
    mkdirSync(target)
    await mounts.mount({
      source: 'a source',
      target,
      type: 'tmpfs',
      flags: ['noexec'],
      data: 'size=8k,mode=700',
    })
    const entry = (await mounts.list()).find(({ mountPoint }) => mountPoint === target)
    expect(entry).toMatchObject({ type: 'tmpfs', source: 'a source', options: 'rw,noexec,relatime' })
    expect((await files.stat(target))?.mode).toBe(0o700)

    await mounts.mount({ source: '', target, type: '', flags: ['remount', 'bind', 'ro'], data: '' })
    await expect(files.write(join(target, 'file'), '')).rejects.toMatchObject({ errno: 'EROFS' })
    await mounts.unmount(target)
    expect(await mountPointsBelow()).toEqual([folder])
  })

  it('names target and errno of what fails', async () => {
    await expect(mounts.unmount('/nowhere')).rejects.toThrow('unmount /nowhere: ENOENT')
    await expect(bind('/nowhere', folder)).rejects.toMatchObject({ code: 'INTERNAL', errno: 'ENOENT' })
    await expect(mounts.unmount(join(folder, 'no\0thing'))).rejects.toThrow('without a NUL')
  })

  it('mounts, remounts and changes only at paths without links, when links are refused', async () => {
    const target = join(folder, 'real', 'target')
    mkdirSync(target, { recursive: true })
    symlinkSync('real', join(folder, 'link'))
    symlinkSync('target', join(folder, 'real', 'last'))
    const mount = (path: string, flags: readonly MountFlag[] = []) =>
      mounts.mount({ source: 'tmpfs', target: path, type: 'tmpfs', flags, data: '', refuseLinks: true })
    for (const path of ['link/target', 'real/last']) {
      await expect(mount(join(folder, path))).rejects.toThrow(`mount ${join(folder, path)}: ELOOP`)
    }
    await expect(mount(join(folder, 'none'))).rejects.toMatchObject({ errno: 'ENOENT' })
    expect(await mountPointsBelow()).toEqual([folder])
    const open = ownDescriptors().length

    await mount(target)
    await mount(target, ['remount', 'ro'])
    await mount(target, ['private'])
    const entries = (await mounts.list()).filter(({ mountPoint }) => mountPoint === target)
    expect(entries).toMatchObject([{ type: 'tmpfs', options: 'ro,relatime' }])
    expect(ownDescriptors()).toHaveLength(open)
  })

  it.skipIf(noLongOverlays)(
    'mounts an overlay with more than a page of options, but over no link',
    async () => {
      const layers = Array.from({ length: 60 }, (_, index) => join(folder, `${index}`.padEnd(80, 'x')))
      for (const path of [...layers, join(folder, 'target')]) mkdirSync(path)
      symlinkSync('target', join(folder, 'link'))
      const mount = (name: string, data = `lowerdir=${layers.join(':')}`) =>
        mounts.mount({
          source: 'o',
          target: join(folder, name),
          type: 'overlay',
          flags: ['ro'],
          data,
          refuseLinks: true,
        })
      const open = ownDescriptors().length
      await expect(mount('link')).rejects.toThrow(`mount ${folder}/link: ELOOP`)
      await expect(mount('target', `lowerdir=${[...layers, '/none'].join(':')}`)).rejects.toThrow('ENOENT')
      expect(await mountPointsBelow()).toEqual([folder])
      await mount('target')
      const entries = (await mounts.list()).filter(({ mountPoint }) => mountPoint === join(folder, 'target'))
      expect(entries).toMatchObject([{ type: 'overlay', source: 'o', options: 'ro,relatime' }])
      expect(ownDescriptors()).toHaveLength(open)
    },
  )

  it('detaches a busy mount', async () => {
    const target = join(folder, 'busy')
    mkdirSync(target)
    await mounts.mount({ source: 'tmpfs', target, type: 'tmpfs', flags: [], data: '' })
    const held = native.openAt2(-100, target, { flags: 0o200000, mode: 0, resolve: 0 })
    await expect(mounts.unmount(target)).rejects.toThrow(`unmount ${target}: EBUSY`)
    await mounts.unmount(target, { detach: true })
    expect(await mountPointsBelow()).toEqual([folder])
    native.close(held)
  })

  it('does not unmount through a link', async () => {
    const link = join(folder, 'link')
    execFileSync('ln', ['-s', folder, link])
    await expect(mounts.unmount(link)).rejects.toMatchObject({ errno: 'EINVAL' })
  })
})

describe('removeTree', () => {
  it('does not remove what is mounted below: a tmpfs with a file that is bound onto another', async () => {
    const tree = join(folder, 'tree')
    const mounted = join(tree, 'deep', 'tmpfs')
    mkdirSync(mounted, { recursive: true })
    await mounts.mount({ source: 'tmpfs', target: mounted, type: 'tmpfs', flags: [], data: '' })
    writeFileSync(join(mounted, 'kept'), 'kept')
    writeFileSync(join(mounted, 'onto'), '')
    await bind(join(mounted, 'kept'), join(mounted, 'onto'))

    await expect(files.removeTree(tree)).rejects.toThrow(`remove ${mounted}: EXDEV`)
    expect(readFileSync(join(mounted, 'onto'), 'utf8')).toBe('kept')
  })

  it('does not remove through a bind mount of the same file system', async () => {
    mkdirSync(join(folder, 'precious'))
    writeFileSync(join(folder, 'precious', 'file'), 'precious')
    mkdirSync(join(folder, 'tree', 'bound'), { recursive: true })
    await bind(join(folder, 'precious'), join(folder, 'tree', 'bound'))
    await expect(files.removeTree(join(folder, 'tree'))).rejects.toMatchObject({ errno: 'EXDEV' })
    expect(readFileSync(join(folder, 'precious', 'file'), 'utf8')).toBe('precious')
  })

  it('does not remove a file that is mounted over', async () => {
    mkdirSync(join(folder, 'tree'))
    const [source, target] = [join(folder, 'source'), join(folder, 'tree', 'target')]
    writeFileSync(source, 'source')
    writeFileSync(target, 'target')
    await bind(source, target)
    await expect(files.removeTree(join(folder, 'tree'))).rejects.toThrow(`remove ${target}: EBUSY`)
    await mounts.unmount(target)
    await files.removeTree(join(folder, 'tree'))
    expect(existsSync(join(folder, 'tree'))).toBe(false)
    expect(readFileSync(source, 'utf8')).toBe('source')
  })

  it('does not empty a directory that is a mount itself', async () => {
    writeFileSync(join(folder, 'file'), '')
    await expect(files.removeTree(folder)).rejects.toThrow(`remove ${folder}: EXDEV`)
    expect(existsSync(join(folder, 'file'))).toBe(true)
  })
})

describe('makeNode', () => {
  it('makes device nodes', async () => {
    const path = join(folder, 'null')
    expect(native.makeNode(path, 0o020_600, 1, 3)).toBe(0)
    expect(await files.stat(path)).toMatchObject({ kind: 'character', mode: 0o600, major: 1, minor: 3 })
    expect(native.makeNode(path, 0o020_600, 1, 3)).toBe(-17)
  })
})

describe('openAt2', () => {
  it('resolves beneath a directory only', async () => {
    execFileSync('ln', ['-s', '/etc', join(folder, 'link')])
    const RESOLVE_BENEATH = 8
    const directory = native.openAt2(-100, folder, { flags: 0o200000, mode: 0, resolve: 0 })
    const open = (path: string) =>
      native.openAt2(directory, path, { flags: 0, mode: 0, resolve: RESOLVE_BENEATH })
    expect(open('../../..')).toBe(-18)
    expect(open('link/passwd')).toBe(-18)
    native.close(directory)
  })
})

/** Answers FUSE_INIT (linux/fuse.h), the first request to a server: only then does an unmount wait for it. */
function answerInit(server: number): void {
  const request = Buffer.alloc(65_536)
  readSync(server, request)
  const answer = Buffer.alloc(80)
  answer.writeUInt32LE(answer.length, 0)
  request.copy(answer, 8, 8, 16)
  answer.writeUInt32LE(7, 16)
  answer.writeUInt32LE(31, 20)
  answer.writeUInt32LE(4096, 36)
  writeSync(server, answer)
}
