import { chmodSync, existsSync, lstatSync, mkdirSync, statSync, symlinkSync, writeFileSync } from 'node:fs'
import { rename } from 'node:fs/promises'
import { connect, createServer } from 'node:net'
import { join } from 'node:path'
import { afterEach, describe, expect, it } from 'vitest'
import { jsonLogger, silentLogger } from '../../../src/base/log.ts'
import {
  ChangeStateRequest_Change as Change,
  WatchInstancesRequest,
} from '../../../src/gen/microvm/instance/v1/instance.ts'
import { NO_CONFIGURATION } from '../../../src/host/service/configuration.ts'
import { startDaemon } from '../../../src/host/service/daemon.ts'
import {
  type DaemonClient,
  type RunningDaemon,
  runMockDaemon,
} from '../../support/host-wing/running-daemon.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import { ensureRequest } from '../../support/wing/requests.ts'

const uid = process.getuid?.() ?? 0

describe('a daemon', () => {
  const started: RunningDaemon[] = []

  afterEach(async () => {
    for (const running of started.splice(0)) await running.close()
  })

  async function run(options: Parameters<typeof runMockDaemon>[0] = {}): Promise<RunningDaemon> {
    const running = await runMockDaemon(options)
    started.push(running)
    return running
  }

  it('keeps its sockets to their owners', async () => {
    const { folder, daemon } = await run()
    expect([folder, daemon.socket].map((path) => (lstatSync(path).mode & 0o777).toString(8))).toEqual([
      '700',
      '600',
    ])
  })

  it('lets tenants pass through its folders, which they cannot list', async () => {
    const tenants = [{ name: 'anne', uid, folders: [] }]
    const { folder } = await run({ configuration: { tenants } })
    const modes = ['', 'tenants', 'tenants/anne.sock', 'admin.sock'].map((path) =>
      (statSync(join(folder, path)).mode & 0o777).toString(8),
    )
    expect(modes).toEqual(['711', '711', '600', '600'])
  })

  it('keeps from a tenant the streams of the others', async () => {
    const tenants = [{ name: 'anne', uid, folders: [] }]
    const running = await run({ configuration: { tenants } })
    const watch = (client: DaemonClient) => {
      const { call, ended } = client.open('microvm.instance.v1.InstanceService/WatchInstances')
      call.end(Buffer.alloc(0))
      return ended
    }
    const most = Array.from({ length: 16 }, () => running.client('anne'))
    for (const client of most) for (let count = 0; count < 128; count += 1) void watch(client).catch(() => {})
    await expect(watch(running.client('anne'))).rejects.toMatchObject({
      message: 'streams of all connections: 2048 of at most 2048 in use',
    })
    const admin = running.client().open('microvm.instance.v1.InstanceService/WatchInstances')
    admin.call.end(Buffer.from(WatchInstancesRequest.encode({ after: 0n, once: true }).finish()))
    await admin.ended
  })

  it('lists instances whose specifications together are longer than a request may be', async () => {
    const { instances } = (await run()).client()
    const items = Array.from({ length: 250 }, (_, index) => `item${index}`)
    const devices = items.map((key) => [
      key,
      { backend: `${key}-file`, firmwareItem: { name: `opt/${key}` } },
    ])
    const path = `/${'x'.repeat(4000)}`
    const backends = items.map((key) => [`${key}-file`, { content: { path } }])
    const specification = { devices: Object.fromEntries(devices), backends: Object.fromEntries(backends) }
    const keys = ['a', 'b', 'c', 'd', 'e']
    for (const key of keys) await instances.ensureInstance(ensureRequest(key, { specification }))
    const listed = await instances.listInstances({})
    expect(listed.instances.map(({ properties }) => properties?.key)).toEqual(keys)
  })

  it('replaces the socket of a daemon that was killed', async () => {
    const folder = join(temporaryFolder(), 'state')
    mkdirSync(folder, { mode: 0o700 })
    const dead = join(folder, 'admin.sock')
    const server = createServer()
    await new Promise<void>((resolve) => server.listen(`${dead}.0`, resolve))
    // Renamed, the file stays when its server is closed.
    await rename(`${dead}.0`, dead)
    await new Promise((resolve) => server.close(resolve))
    expect(lstatSync(dead).isSocket()).toBe(true)
    const running = await run({ folder })
    expect(await running.client().instances.listInstances({})).toEqual({ instances: [] })
  })

  it('does not start beside another', async () => {
    const { folder, client } = await run()
    await expect(run({ folder })).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
      message: `${folder}/admin.sock: another process serves it, want that stopped first or another --state`,
    })
    expect(await client().instances.listInstances({})).toEqual({ instances: [] })
  })

  it.each([
    ['is a file', (path: string) => writeFileSync(path, ''), 'ENOTDIR'],
    ["is another user's to write", (path: string) => mkdirSync(path), 'other users can change it'],
  ])('does not start when its folder %s', async (_what, make, reason) => {
    const folder = join(temporaryFolder(), 'state')
    make(folder)
    chmodSync(folder, 0o777)
    await expect(run({ folder })).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
      message: expect.stringMatching(new RegExp(`^.*${folder}: ${reason}, want a folder .*$`)),
    })
  })

  it('does not start when it cannot make its folder', async () => {
    await expect(run({ folder: '/proc/nothing/state' })).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
      message:
        'state folder /proc/nothing/state: ENOENT, want a folder that this user can write (--state DIR)',
    })
  })

  it('says which path is too long for a socket', async () => {
    const folder = join(temporaryFolder(), 'x'.repeat(100))
    await expect(run({ folder })).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
      message: `${folder}/admin.sock: longer than 107 bytes, want a shorter --state or --socket`,
    })
  })

  it('says that its folder is too long for the sockets of instances', async () => {
    const stateFolder = `/run/${'x'.repeat(30)}`
    const options = { stateFolder, configuration: NO_CONFIGURATION, mock: false, log: silentLogger() }
    await expect(startDaemon(options)).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
      message: `state folder ${stateFolder}: 35 bytes, want at most 34 for the sockets in it (--state DIR)`,
    })
    expect(existsSync(stateFolder)).toBe(false)
  })

  it.each([
    ['file', 'not a socket, want another --socket'],
    ['none/other.sock', 'its folder does not exist'],
  ])('says why it cannot listen at %s', async (name, reason) => {
    const folder = temporaryFolder()
    writeFileSync(join(folder, 'file'), '')
    const started = startDaemon({
      ...{ stateFolder: join(folder, 'state'), socket: join(folder, name) },
      ...{ configuration: NO_CONFIGURATION, mock: true, log: silentLogger() },
    })
    await expect(started).rejects.toMatchObject({ message: `${join(folder, name)}: ${reason}` })
  })

  it('does not follow a link to its folder', async () => {
    const folder = temporaryFolder()
    symlinkSync(folder, join(folder, 'link'))
    await expect(run({ folder: join(folder, 'link') })).rejects.toMatchObject({
      message: `${folder}/link: a link, want the folder itself`,
    })
  })

  it('listens at another path when it is told so', async () => {
    const folder = temporaryFolder()
    const socket = join(folder, 'other.sock')
    const daemon = await startDaemon({
      ...{ stateFolder: folder, socket, configuration: NO_CONFIGURATION },
      ...{ mock: true, log: silentLogger() },
    })
    expect(daemon.socket).toBe(socket)
    expect(lstatSync(socket).isSocket()).toBe(true)
    await daemon.close()
  })

  it('ends streams and removes its sockets when it stops, and is not held up by idle clients', async () => {
    const running = await run()
    const client = running.client()
    const watching = client.open('microvm.instance.v1.InstanceService/WatchInstances')
    watching.call.end(new Uint8Array(0))
    await client.instances.ensureInstance(ensureRequest('a'))
    await expect.poll(() => watching.answers.length).toBeGreaterThan(0)
    const idle = connect(running.daemon.socket)
    await new Promise((resolve) => idle.once('connect', resolve))
    const begun = performance.now()
    await running.daemon.close()
    expect(performance.now() - begun).toBeLessThan(4000)
    await expect(watching.ended).rejects.toMatchObject({ code: 'UNAVAILABLE', message: 'the daemon stops' })
    expect(() => lstatSync(running.daemon.socket)).toThrow('ENOENT')
    idle.destroy()
  })

  it('warns of the folders of tenants in which others can replace files', async () => {
    const lines: string[] = []
    const [folder, open, none] = [temporaryFolder(), temporaryFolder(), '/nowhere/at/all']
    chmodSync(open, 0o1777)
    const configuration = { tenants: [{ name: 'anne', uid, folders: [folder, open, none] }] }
    const log = jsonLogger({ sink: (line) => lines.push(line), level: () => 'warn', version: '1', pid: 1 })
    await run({ log, configuration })
    expect(lines.map((line) => JSON.parse(line))).toMatchObject([
      { msg: 'folder of a tenant not used', folder: open, reason: 'others can replace what is in it' },
    ])
  })

  it('writes one line for each changing call and for each change of an instance', async () => {
    const lines: string[] = []
    const log = jsonLogger({
      sink: (line) => lines.push(line),
      level: () => 'info',
      version: '1',
      pid: 1,
    })
    const { client } = await run({ log })
    const { instances } = client()
    await instances.ensureInstance(ensureRequest('a'))
    await instances.getInstance({ key: 'a' })
    await instances.changeState({ key: 'b', change: Change.RUN }).catch(() => {})
    const seen = () =>
      lines
        .map((line) => JSON.parse(line))
        .map(({ msg, key, kind, code, error }) => ({ msg, key, kind, code, error }))
    await expect.poll(() => seen().length).toBe(5)
    const [serving, ...others] = seen()
    expect(serving).toMatchObject({ msg: 'serving' })
    expect(others).toEqual(
      expect.arrayContaining([
        { msg: 'rpc', key: 'a', code: 'OK' },
        { msg: 'instance', key: 'a', kind: 'created' },
        { msg: 'instance', key: 'a', kind: 'state' },
        { msg: 'rpc', key: 'b', code: 'NOT_FOUND', error: 'instance b: not found' },
      ]),
    )
  })
})
