import { execFileSync } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { lstatSync, mkdirSync, readdirSync, readFileSync, readlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { SIGKILL } from '../../../src/base/signals.ts'
import { AgentServiceDefinition, CopyFileRequest } from '../../../src/gen/agent.ts'
import { clientFor } from '../../../src/rpc/client.ts'
import type { TtrpcClient } from '../../../src/rpc/ttrpc/client.ts'
import { recordedRequest } from '../../recordings/recorded-request.ts'
import { connectionsOf, FRAMINGS, type Framing } from '../../sequences/wires.ts'
import { bind } from '../../support/containers/container-requests.ts'
import { type AgentPod, inNamespaceOf, startPod } from '../../support/host/agent-pod.ts'
import { guestProgram } from '../../support/programs/guest/guest-program.ts'
import { READ_VERSIONS } from '../../support/programs/guest/volume-reader.ts'

const SHARED = '/run/kata-containers/shared/containers'
const MIB = 2 ** 20
const TYPES = { file: 0o100_000, folder: 0o040_000, link: 0o120_000 }

/** The Go shim's modes of parents contain Go's own bits. */
const { dirMode } = recordedRequest(CopyFileRequest, 'go-shim.no-shared-fs', 7)

type Agent = AgentPod['agent']

type Source = Partial<Omit<CopyFileRequest, 'path'>>

function request(path: string, source: Source): CopyFileRequest {
  const { data = Buffer.alloc(0) } = source
  const given = { fileSize: BigInt(data.length), fileMode: TYPES.file | 0o644, dirMode, ...source }
  return CopyFileRequest.fromPartial({ path: `${SHARED}/${path}`, ...given })
}

const text = (content: string, source: Source = {}): Source => ({ data: Buffer.from(content), ...source })
const folder = (mode = 0o755, source: Source = {}): Source => ({ fileMode: TYPES.folder | mode, ...source })
const link = (target: string): Source => ({ ...text(target), fileMode: TYPES.link | 0o777 })

describe('CopyFile', () => {
  let pod: AgentPod
  let connections: Record<Framing, Pick<TtrpcClient, 'call' | 'close'>>
  beforeAll(async () => {
    pod = await startPod()
    const { path } = pod.started
    connections = { ttrpc: await connectionsOf.ttrpc(path), grpc: await connectionsOf.grpc(path) }
    for (const framing of FRAMINGS) await connections[framing].call('grpc.Health', 'Check', new Uint8Array())
    for (const name of ['volume-reader', 'race-links'])
      writeFileSync(join(pod.root, 'bin', name), await guestProgram(name), { mode: 0o755 })
  })
  afterAll(async () => {
    for (const framing of FRAMINGS) connections[framing].close()
    await pod.stop()
  })

  it('continues a file when the agent dies after each of its chunks', async () => {
    const parts = Array.from({ length: 4 }, (_, part) => Buffer.alloc(100_000, part + 1))
    const whole = Buffer.concat(parts)
    for (const [part, data] of parts.entries()) {
      const source = { data, offset: BigInt(part * 100_000), fileSize: BigInt(whole.length) }
      await copy('killed/deep/file', source)
      process.kill(pod.started.agentPid(), SIGKILL)
      await pod.agent.getGuestDetails({})
    }
    expect(readFileSync(place('killed/deep/file')).equals(whole)).toBe(true)
    expect(names('killed/deep')).toEqual(['file'])
    expect(names('../../../microvm-agent/saved/copies')).toEqual([])
    await connections.grpc.close()
    connections.grpc = await connectionsOf.grpc(pod.started.path)
  })

  const copy = (path: string, source: Source, agent: Agent = pod.agent) =>
    agent.copyFile(request(path, source))
  const place = (path: string) => pod.started.inside(`${SHARED}/${path}`)
  const contentOf = (path: string) => readFileSync(place(path), 'utf8')
  const names = (path: string) => readdirSync(place(path)).toSorted()
  const attributes = (path: string) => {
    const { mode, uid, gid } = lstatSync(place(path))
    return [mode.toString(8), uid, gid]
  }

  describe.each(FRAMINGS)('over %s', (framing) => {
    const agent = () => clientFor(AgentServiceDefinition, connections[framing])

    it('makes a file with its mode and owner, and its parents, the last of which gets the owner', async () => {
      const source = text('content', { fileMode: TYPES.file | 0o4751, uid: 1000, gid: 2000 })
      await copy(`${framing}/a/b/file`, source, agent())
      expect(contentOf(`${framing}/a/b/file`)).toBe('content')
      expect(attributes(`${framing}/a/b/file`)).toEqual(['104751', 1000, 2000])
      expect(attributes(`${framing}/a/b`)).toEqual(['40750', 1000, 2000])
      expect(attributes(`${framing}/a`)).toEqual(['40750', 0, 0])
    })

    it('makes a file of several chunks, which is not there before the last one', async () => {
      const data = Buffer.alloc(2 * MIB + 5, 'chunk ')
      const chunk = (offset: number) => ({
        ...{ data: data.subarray(offset, offset + MIB), offset: BigInt(offset) },
        fileSize: BigInt(data.length),
      })
      const path = `${framing}-chunks/file`
      await copy(path, chunk(0), agent())
      await copy(path, chunk(MIB), agent())
      const [unfinished = ''] = names(`${framing}-chunks`)
      expect(names(`${framing}-chunks`)).toEqual([expect.stringMatching(/^\.copyfile-[0-9a-f]{32}$/)])
      expect(attributes(`${framing}-chunks/${unfinished}`)).toEqual(['100600', 0, 0])
      await copy(path, chunk(2 * MIB), agent())
      expect(names(`${framing}-chunks`)).toEqual(['file'])
      expect(readFileSync(place(path)).equals(data)).toBe(true)
    })

    it('makes directories and links, and replaces what has the name', async () => {
      const path = `${framing}-kinds/entry`
      await copy(path, folder(0o1770, { uid: 5, gid: 6 }), agent())
      expect(attributes(path)).toEqual(['41770', 5, 6])
      await copy(`${path}/inner`, text('kept'), agent())
      await copy(path, folder(0o700), agent())
      expect([attributes(path), names(path)]).toEqual([['40700', 0, 0], ['inner']])
      await copy(path, { ...link('/etc'), uid: 7, gid: 8 }, agent())
      expect(readlinkSync(place(path))).toBe('/etc')
      expect(attributes(path)).toEqual(['120777', 7, 8])
      await copy(path, link('elsewhere'), agent())
      await copy(path, folder(), agent())
      await copy(path, text('file'), agent())
      expect(contentOf(path)).toBe('file')
      await copy(path, text(''), agent())
      expect(contentOf(path)).toBe('')
      expect(names(`${framing}-kinds`)).toEqual(['entry'])
    })
  })

  it('never has the data of a long chunk in its own memory', async () => {
    const data = randomBytes(3.75 * MIB)
    const paths = Array.from({ length: 4 }, (_, index) => `long/file-${index}`)
    const status = () => readFileSync(`/proc/${pod.started.agentPid()}/status`, 'utf8')
    const kib = (name: string) => Number(new RegExp(`^${name}:\\s+(\\d+) kB$`, 'm').exec(status())?.[1])
    // When the agent locks its program, it unmaps it first. What it reads again would be taken for data.
    await expect.poll(() => kib('VmLck')).toBeGreaterThan(0)
    await copy('long/before', { data })
    // Begins to measure anew (man 5 proc).
    writeFileSync(`/proc/${pod.started.agentPid()}/clear_refs`, '5')
    const before = kib('VmHWM')
    await Promise.all(paths.map((path) => copy(path, { data })))
    expect((kib('VmHWM') - before) * 1024).toBeLessThan(data.length)
    for (const path of paths) expect(readFileSync(place(path)).equals(data)).toBe(true)
  })

  it('serves many files at once', async () => {
    const all = Array.from({ length: 100 }, (_, index) => `crowd/${index % 10}/file-${index}`)
    await Promise.all(all.map((path) => copy(path, text(path))))
    for (const path of all) expect(contentOf(path)).toBe(path)
    expect(names('crowd').flatMap((name) => names(`crowd/${name}`))).toHaveLength(100)
  })

  describe('with a symbolic link in the place of', () => {
    /** Links that a container could have made: to a folder of the guest, and to a folder in the tree. */
    const TARGETS = ['/run/outside', '../inside']
    beforeAll(async () => {
      mkdirSync(pod.started.inside('/run/outside'))
      await copy('links/inside/file', text('untouched'))
    })

    it.each(TARGETS)('a parent, to %s: INTERNAL, and nothing is written', async (target) => {
      await copy('links/tree/link', link(target))
      for (const path of ['links/tree/link/file', 'links/tree/link/a/b/file', 'links/tree/link/a']) {
        for (const source of [text('escaped'), folder(0o777), link('escaped')]) {
          const refused = { code: 'INTERNAL', message: expect.stringMatching(/: (ELOOP|ENOTDIR)$/) }
          await expect(copy(path, source), path).rejects.toMatchObject(refused)
        }
      }
      expect(readdirSync(pod.started.inside('/run/outside'))).toEqual([])
      expect(names('links/inside')).toEqual(['file'])
    })

    it.each(TARGETS)('the entry itself, to %s: the link is replaced', async (target) => {
      for (const source of [text('new'), folder(0o700), link('/new')]) {
        await copy('links/tree/link', link(target))
        await copy('links/tree/link', source)
        expect(attributes('links/inside')).toEqual(['40750', 0, 0])
      }
      expect(contentOf('links/inside/file')).toBe('untouched')
    })

    it('the unfinished file: it is replaced, too', async () => {
      const half = { data: Buffer.from('half'), fileSize: 8n }
      await copy('links/half/file', half)
      const [unfinished = ''] = names('links/half')
      const planted = `${SHARED}/links/half/${unfinished}`
      inNamespaceOf(pod.started, 'ln', '-sf', '/run/outside/made', planted)
      await copy('links/half/file', text('whole'))
      expect(contentOf('links/half/file')).toBe('whole')
      expect(readdirSync(pod.started.inside('/run/outside'))).toEqual([])
    })
  })

  it('says when a parent is no directory, and makes nothing of a path that is too long', async () => {
    await copy('plain/file', text('x'))
    await expect(copy('plain/file/below', text('x'))).rejects.toMatchObject({
      message: expect.stringMatching(/: ENOTDIR$/),
    })
    const long = 'x'.repeat(256)
    const tooLong = { code: 'INTERNAL', message: expect.stringMatching(/: ENAMETOOLONG: /) }
    await expect(copy(`plain/${long}`, text('x'))).rejects.toMatchObject(tooLong)
    await expect(copy(`plain/new/${long}/y`, text('x'))).rejects.toMatchObject(tooLong)
    expect(names('plain')).toEqual(['file'])
    await copy(`plain/${'x'.repeat(255)}`, text('x'))
  })

  it('removes what it made when the file system is full in the middle', async () => {
    mkdirSync(place('small'))
    inNamespaceOf(pod.started, 'mount', '-t', 'tmpfs', '-o', 'size=2m', 'tmpfs', `${SHARED}/small`)
    const chunk = (offset: number) => ({
      ...{ data: Buffer.alloc(MIB, 'x'), offset: BigInt(offset), fileSize: BigInt(4 * MIB) },
    })
    await copy('small/a/b/file', chunk(0))
    const full = (async () => {
      for (let offset = MIB; offset < 4 * MIB; offset += MIB) await copy('small/a/b/file', chunk(offset))
    })()
    await expect(full).rejects.toMatchObject({
      code: 'INTERNAL',
      message: expect.stringMatching(/^write .*: ENOSPC: /),
    })
    expect(names('small')).toEqual([])
    await expect(copy('small/a/b/file', chunk(3 * MIB))).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
    })
    // Nothing of the copy is kept.
    await copy('small/file', { data: Buffer.alloc(1.5 * MIB, 'y') })
    await expect(copy('small/file', { data: Buffer.alloc(MIB, 'z') })).rejects.toMatchObject({
      code: 'INTERNAL',
    })
    expect(contentOf('small/file').slice(0, 2)).toBe('yy')
    inNamespaceOf(pod.started, 'umount', `${SHARED}/small`)
  })

  it('keeps a volume of Kubernetes whole for its readers while new versions are copied', async () => {
    const volume = `${'c'.repeat(64)}-0123456789abcdef-volume`
    /** As the shim walks it: the folder of the version, the link that makes it the current one, the links to files. */
    const copyVersion = async (name: string, content: string) => {
      await copy(`${volume}/${name}`, folder())
      for (const file of ['a', 'b']) await copy(`${volume}/${name}/${file}`, text(content))
      await copy(`${volume}/..data`, link(name))
      for (const file of ['a', 'b']) await copy(`${volume}/${file}`, link(`..data/${file}`))
    }
    await copyVersion('..2026_11_22_1', 'one')
    const mounts = [bind(`${SHARED}/${volume}`, '/volume')]
    const reader = await pod.run('reader', ['sh', '-c', READ_VERSIONS], { mounts })
    await reader.readUntil('version one\n')
    await copyVersion('..2026_11_22_2', 'two')
    expect(await reader.readUntil('event\n')).not.toContain('broken')
    await copyVersion('..2026_11_22_3', 'three')
    expect((await reader.readAll()).toString()).not.toContain('broken')
    expect(await reader.wait()).toBe(0)
    await pod.remove('reader')
  })

  describe('an unfinished file', () => {
    const half = { data: Buffer.from('half'), fileSize: 8n }
    const rest = { ...half, offset: 4n }
    const noMore = { code: 'FAILED_PRECONDITION' }

    it('is dropped with the container that it is for', async () => {
      const files = pod.started.openFiles()
      await pod.create('owner', ['true'])
      const paths = ['owner-0123456789abcdef-hosts', 'owner-01234567-volume/file', 'owner/file']
      for (const path of [...paths, 'owner-2/file']) await copy(path, half)
      await pod.remove('owner')
      for (const path of paths) await expect(copy(path, rest), path).rejects.toMatchObject(noMore)
      await copy('owner-2/file', rest)
      expect(contentOf('owner-2/file')).toBe('halfhalf')
      expect(readdirSync(place('.')).filter((name) => name.startsWith('.'))).toEqual([])
      expect(pod.started.openFiles()).toEqual(files)
    })

    it('in a storage of the container is dropped, too', async () => {
      const options = ['lowerdir', 'upperdir', 'workdir'].map((name) => `${name}=/run/${name}`)
      for (const option of options) mkdirSync(pod.started.inside(option.split('=')[1] ?? ''))
      const stored = { driver: 'overlayfs', source: 'overlay', fstype: 'overlay', options }
      const storages = [{ ...stored, mountPoint: `${SHARED}/owner/volume` }]
      await pod.create('owner', ['true'], { storages })
      await copy('owner/volume/file', half)
      const left = () => readdirSync(pod.started.inside('/run/upperdir'))
      expect(left()).toEqual([expect.stringMatching(/^\.copyfile-/)])
      await pod.remove('owner')
      expect(left()).toEqual([])
    })

    it('begins anew at offset 0, and replaces what has the name at once', async () => {
      await copy('anew/file', text('old'))
      await copy('anew/file', half)
      expect(names('anew')).toEqual([expect.stringMatching(/^\.copyfile-/)])
      await copy('anew/file', { ...half, fileSize: 12n })
      await copy('anew/file', { ...half, fileSize: 12n, offset: 4n })
      await copy('anew/file', { ...half, fileSize: 12n, offset: 8n })
      expect(contentOf('anew/file')).toBe('halfhalfhalf')
    })
  })

  it('reaches nothing outside while a container swaps folders for links', async () => {
    const outside = '/run/outside-race'
    const seen = () => {
      const format = '%p %y %m %U %G %s %T@ %C@\\n'
      return execFileSync('find', [pod.started.inside(outside), '-printf', format], { encoding: 'utf8' })
    }
    mkdirSync(pod.started.inside(`${outside}/sub`), { recursive: true })
    writeFileSync(pod.started.inside(`${outside}/secret`), 'secret', { mode: 0o600 })
    const before = seen()
    await copy('race', folder(0o777))
    const mounts = [bind(`${SHARED}/race`, '/tree')]
    const racer = await pod.run('racer', ['/bin/race-links', '/tree', outside, '4'], { mounts })
    await racer.readUntil('racing\n')
    let isOver = false
    const output = racer.readAll().finally(() => {
      isOver = true
    })
    const outcomes = { copied: 0, refused: 0 }
    const attempt = async (path: string, source: Source) => {
      const done = await copy(path, source).then(
        () => true,
        () => false,
      )
      outcomes[done ? 'copied' : 'refused'] += 1
    }
    const owned = { uid: 1000, gid: 1000 }
    while (!isOver) {
      const long = { fileSize: 8n, ...owned }
      await Promise.all([
        attempt('race/dir/file', text('escaped', { ...owned, fileMode: TYPES.file | 0o777 })),
        attempt('race/dir/secret', text('escaped', owned)),
        attempt('race/dir/sub/file', text('escaped', owned)),
        attempt('race/dir/new/new/file', text('escaped', owned)),
        attempt('race/dir/long', text('half', long)),
        attempt('race/dir/long', text('half', { ...long, offset: 4n })),
        attempt('race/dir/link', { ...link('/escaped'), ...owned }),
        attempt('race/dir/secret', folder(0o777, owned)),
        attempt('race/dir/sub', folder(0o777, owned)),
        attempt('race/dir', folder(0o777, owned)),
      ])
    }
    const swaps = Number((await output).toString())
    expect(await racer.wait()).toBe(0)
    expect(seen()).toBe(before)
    expect(readFileSync(pod.started.inside(`${outside}/secret`), 'utf8')).toBe('secret')
    // Fewer swaps would be no race.
    expect(swaps).toBeGreaterThan(1000)
    expect(Math.min(outcomes.copied, outcomes.refused)).toBeGreaterThan(50)
  })
})

describe('the files that an agent has copied', () => {
  it('are removed by DestroySandbox, the unfinished ones too', async () => {
    const pod = await startPod()
    try {
      await pod.agent.copyFile(request('done', text('x')))
      await pod.agent.copyFile(request('folder/half', { data: Buffer.from('half'), fileSize: 8n }))
      const root = pod.started.inside('/run/kata-containers')
      await pod.agent.destroySandbox({})
      expect(readdirSync(root)).toEqual([])
    } finally {
      await pod.stop()
    }
  })

  it('stay when it dies, those that were unfinished too', async () => {
    const pod = await startPod()
    try {
      await pod.agent.copyFile(request('done', text('x')))
      await pod.agent.copyFile(request('folder/half', { data: Buffer.from('half'), fileSize: 8n }))
      process.kill(pod.started.agentPid(), SIGKILL)
      await pod.started.logged({ msg: 'agent restarted: sandbox restored' })
      const { agent } = pod
      const rest = request('folder/half', { data: Buffer.from('half'), fileSize: 8n, offset: 4n })
      await agent.copyFile(rest)
      const shared = pod.started.inside('/run/kata-containers/shared/containers')
      expect(readFileSync(`${shared}/done`, 'utf8')).toBe('x')
      expect(readFileSync(`${shared}/folder/half`, 'utf8')).toBe('halfhalf')
      await agent.copyFile(request('folder/half', text('whole')))
    } finally {
      await pod.stop()
    }
  })
})
