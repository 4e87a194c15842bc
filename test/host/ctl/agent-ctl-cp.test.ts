import { execFileSync } from 'node:child_process'
import {
  appendFileSync,
  chmodSync,
  copyFileSync,
  linkSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { dirname, join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { Interruptions } from '../../../src/client/terminal/interruptions.ts'
import { busyboxRoot } from '../../support/containers/busybox-root.ts'
import { createContainerRequest } from '../../support/containers/container-requests.ts'
import { cuttingProxy } from '../../support/ctl/cutting-proxy.ts'
import { type CtlRun, ctl } from '../../support/ctl/run-ctl.ts'
import { type AgentPod, startPod } from '../../support/host/agent-pod.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

const DONE: CtlRun = { status: 0, stdout: '', stderr: '' }

let pod: AgentPod
let address: string
beforeAll(async () => {
  pod = await startPod()
  address = `unix://${pod.started.path}`
  const tmpfs = { type: 'tmpfs', source: 'tmpfs' }
  const mounts = [
    { ...tmpfs, destination: '/small', options: ['size=128k'] },
    { ...tmpfs, destination: '/fixed', options: ['ro'] },
  ]
  await pod.run('web', ['sleep', '1000'], { mounts })
  await runOn('gnu', gnuTarRoot())
  await runOn('bare', busyboxRoot(temporaryFolder(), ['sleep']))
})
afterAll(() => pod.stop())

async function runOn(id: string, root: string): Promise<void> {
  await pod.agent.createContainer(createContainerRequest(id, root, ['sleep', '1000']))
  await pod.agent.startContainer({ containerId: id })
}

function gnuTarRoot(): string {
  const root = busyboxRoot(temporaryFolder(), ['sleep', 'cat', 'ls'])
  const libraries = execFileSync('ldd', ['/bin/tar'], { encoding: 'utf8' }).match(/\/\S+/g) ?? []
  for (const path of ['/bin/tar', ...libraries]) {
    mkdirSync(dirname(join(root, path)), { recursive: true })
    copyFileSync(path, join(root, path))
  }
  return root
}

const cp = (...words: readonly string[]): Promise<CtlRun> => ctl(['-a', address, 'cp', ...words])

function file(name: string, content: string | Buffer = name, folder = temporaryFolder()): string {
  const path = join(folder, name)
  mkdirSync(dirname(path), { recursive: true })
  writeFileSync(path, content)
  return path
}

describe.each(['web', 'gnu'])('cp with the tar of container %s', (container) => {
  it.each([0, 1, 10, 4096, 65_536, 1 << 20])('copies a file of %d bytes both ways', async (bytes) => {
    const content = Buffer.alloc(bytes, `${bytes}`)
    const back = join(temporaryFolder(), 'renamed')
    expect(await cp(file(`${bytes}`, content), `${container}:/tmp`)).toEqual(DONE)
    expect(await cp(`${container}:/tmp/${bytes}`, back)).toEqual(DONE)
    expect(readFileSync(back)).toEqual(content)
  })

  it('copies a folder both ways, with long names, modes and links', async () => {
    const [folder, long] = [temporaryFolder(), 'long '.repeat(30)]
    const [tree, back] = [join(folder, 'a tree'), join(folder, 'back')]
    file(`in ner/${long}`, 'x', tree)
    chmodSync(file('program', 'y', tree), 0o750)
    symlinkSync(`in ner/${long}`, join(tree, 'link'))
    linkSync(join(tree, 'program'), join(tree, 'same'))
    expect(await cp(tree, `${container}:/tmp/new name`)).toEqual(DONE)
    expect(await cp(`${container}:/tmp/new name`, back)).toEqual(DONE)
    const names = (each: string) => readdirSync(each, { recursive: true }).sort()
    expect(names(back)).toEqual(names(tree))
    expect(readFileSync(join(back, 'link'), 'utf8')).toBe('x')
    expect(readlinkSync(join(back, 'link'))).toBe(`in ner/${long}`)
    expect(statSync(join(back, 'program')).mode & 0o777).toBe(0o750)
    expect(statSync(join(back, 'same')).ino).toBe(statSync(join(back, 'program')).ino)
  })

  it('reports what tar cannot read', async () => {
    const { status, stderr } = await cp(`${container}:/nonexistent`, temporaryFolder())
    expect(status).toBe(1)
    expect(stderr).toMatch(
      new RegExp(
        `^agent-ctl: cp: ${container}:/nonexistent: tar: ./nonexistent: .*No such file or directory\n$`,
      ),
    )
  })
})

describe('the target of cp', () => {
  const inRoot = (path: string) => readdirSync(join(pod.root, path), { recursive: true }).sort()

  it('is a folder that exists, a new name, or a file to replace', async () => {
    const tree = dirname(file('tree/in/x'))
    const source = dirname(tree)
    mkdirSync(join(pod.root, 'tmp/there'))
    for (const target of ['there', 'there/', 'new', 'there/renamed'])
      expect(await cp(source, `web:/tmp/${target}`)).toEqual(DONE)
    expect(inRoot('tmp/there')).toEqual([
      'renamed',
      'renamed/in',
      'renamed/in/x',
      'tree',
      'tree/in',
      'tree/in/x',
    ])
    expect(inRoot('tmp/new')).toEqual(['in', 'in/x'])
    expect(await cp(`${source}/.`, 'web:/tmp/there')).toEqual(DONE)
    expect(inRoot('tmp/there')).toContain('in/x')
    expect(await cp(file('y', 'newer'), 'web:/tmp/new/in/x')).toEqual(DONE)
    expect(readFileSync(join(pod.root, 'tmp/new/in/x'), 'utf8')).toBe('newer')
  })

  it.each([
    ['FILE', 'web:/nope/x', 'web:/nope: no such folder'],
    ['FILE', 'web:/nope/', 'web:/nope/: no such folder'],
    ['FILE', 'web:/bin/cat/', 'web:/bin/cat/: a file, want a folder'],
    ['FOLDER', 'web:/bin/cat', 'web:/bin/cat: a file, want a folder'],
    ['FOLDER', 'web:/dev/null', 'web:/dev/null: a device, want a folder'],
    ['web:/bin/cat', '/nope/x', '/nope: no such folder'],
    ['web:/bin/cat', '/nope/', '/nope/: no such folder'],
    ['web:/bin', 'FILE', 'FILE: a file, want a folder'],
    ['web:/bin/cat', 'FILE/', 'FILE/: not a directory'],
    ['web:/dev/null', 'FOLDER', 'web:/dev/null: a device, want a file, a folder or a link'],
    ['FIFO', 'web:/tmp', 'FIFO: a fifo, want a file, a folder or a link'],
    ['/dev/null', 'web:/tmp', '/dev/null: a device, want a file, a folder or a link'],
    ['FILE', 'bare:/bin', 'bare: no tar in the container, want an image that has tar'],
    ['bare:/bin', 'FOLDER', 'bare: no tar in the container, want an image that has tar'],
  ])('does not accept %s at %s', async (source, target, text) => {
    const path = file('file')
    const fifo = join(dirname(path), 'fifo')
    execFileSync('mkfifo', [fifo])
    const real = (words: string) =>
      words.replace('FILE', path).replace('FOLDER', dirname(path)).replace('FIFO', fifo)
    const { stderr, stdout } = await cp(real(source), real(target))
    expect({ stderr, stdout }).toEqual({ stderr: `agent-ctl: cp: ${real(text)}\n`, stdout: '' })
    expect(readFileSync(path, 'utf8')).toBe('file')
  })

  it.each([
    [
      ['/etc/hostname', '/tmp'],
      'cp: want CONTAINER:PATH for the source or the target, and a path of this machine for the other',
    ],
    [['web:tmp', '/tmp'], 'web:tmp: want an absolute path after the colon'],
  ])('is not given by %j', async (words, text) => {
    expect(await cp(...words)).toEqual({ status: 2, stdout: '', stderr: `agent-ctl: ${text}\n` })
  })

  it.each([
    ['web:/small', 'No space left on device'],
    ['web:/fixed', 'Read-only file system'],
  ])('is said to be incomplete at %s', async (target, text) => {
    const { status, stderr } = await cp(file('large', Buffer.alloc(4 << 20)), target)
    expect(status).toBe(1)
    expect(stderr).toMatch(
      new RegExp(`^agent-ctl: cp: ${target}/large: tar: .*${text}; ${target}/large may be incomplete\n$`),
    )
  })

  it('is said to be incomplete on a full file system of this machine', async () => {
    const small = temporaryFolder()
    execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=64k', 'tmpfs', small])
    try {
      const { status, stderr } = await cp('web:/bin/busybox', small)
      expect(status).toBe(1)
      expect(stderr).toMatch(/: tar: .*no space left on device; \S+\/busybox may be incomplete\n$/)
    } finally {
      execFileSync('umount', [small])
    }
  })
})

describe('cp', () => {
  it('leaves fifos and devices out, and names them', async () => {
    const folder = dirname(file('tree/kept'))
    execFileSync('mkfifo', [join(folder, 'fifo')])
    execFileSync('mknod', [join(folder, 'null'), 'c', '1', '3'])
    const { status, stderr } = await cp(folder, 'web:/tmp/plain')
    expect(status).toBe(1)
    expect(stderr).toMatch(
      /^agent-ctl: cp: not copied: (fifo|null) \(a .*, (fifo|null) \(a .*\); all else was\n$/,
    )
    expect(readdirSync(join(pod.root, 'tmp/plain'))).toEqual(['kept'])
    const target = '/run/kata-containers/shared/containers/ctl-plain'
    expect((await cp('--guest', folder, target)).stderr).toContain(`${folder}/fifo (a fifo)`)
    expect(readdirSync(pod.started.inside(target))).toEqual(['kept'])
  })

  it('copies a tree into the guest', async () => {
    const [folder, content] = [temporaryFolder(), Buffer.alloc(5 << 20, 'y')]
    file('inner/large', content, folder)
    const target = '/run/kata-containers/shared/containers/ctl-tree'
    expect(await cp('--guest', folder, target)).toEqual(DONE)
    expect(readFileSync(pod.started.inside(`${target}/inner/large`))).toEqual(content)
  })

  async function midway(
    name: string,
    work: (path: string) => void,
    interruptions?: Interruptions,
  ): Promise<CtlRun> {
    const path = file(name, Buffer.alloc(8 << 20, name))
    const proxy = await cuttingProxy(pod.started.path, { fromClient: 1 << 20, atLimit: () => work(path) })
    const run = await ctl(['-a', proxy.address, 'cp', path, 'web:/tmp'], interruptions && { interruptions })
    proxy.close()
    return run
  }

  it('says that a file has changed while it was read', async () => {
    const { status, stderr } = await midway('growing', (path) => appendFileSync(path, 'x'))
    expect(status).toBe(1)
    expect(stderr).toMatch(
      /^agent-ctl: cp: \S+: tar: .*file changed as we read it; web:\/tmp\/growing may be incomplete\n$/,
    )
  })

  it('continues when the agent dies', async () => {
    expect(await midway('lasting', () => process.kill(pod.started.agentPid(), 'SIGKILL'))).toEqual(DONE)
    expect(readFileSync(join(pod.root, 'tmp/lasting'))).toEqual(Buffer.alloc(8 << 20, 'lasting'))
  })

  it('says what may be incomplete when it is interrupted, and leaves no tar behind', async () => {
    const interruptions = new Interruptions()
    const run = await midway('cut', () => interruptions.receive('SIGINT'), interruptions)
    expect(run).toEqual({ ...DONE, status: 130, stderr: 'agent-ctl: cp: web:/tmp/cut may be incomplete\n' })
    expect((await ctl(['-a', address, 'ps', 'web'])).stdout).not.toContain('tar')
  })

  it('says that this machine has no tar', async () => {
    vi.stubEnv('PATH', '/nonexistent')
    const { stderr } = await cp(file('x'), 'web:/tmp')
    vi.unstubAllEnvs()
    expect(stderr).toBe('agent-ctl: tar: not found, want tar installed on this machine\n')
  })
})
