import { writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { PassThrough } from 'node:stream'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { Interruptions } from '../../../src/client/terminal/interruptions.ts'
import { type RunningDaemon, runMockDaemon } from '../../support/host-wing/running-daemon.ts'
import { type MicrovmRun, microvm } from '../../support/microvm/run-microvm.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

const DESCRIPTION = {
  properties: { key: 'web', labels: { app: 'shop' } },
  specification: {
    board: { machine: 'pc-q35-7.2', memory_mib: 256, cpus: 2, kernel: '/boot/vmlinuz' },
    devices: { disk: { backend: 'disk-file', slot: 3, disk: { serial: 'root' } } },
    backends: { 'disk-file': { file: { path: '/srv/web.img', access: 'READ_WRITE' } } },
  },
}

const DATA = {
  device: { backend: 'data-file', slot: 4, disk: { serial: 'data' } },
  backend: { file: { path: '/srv/data.img', access: 'READ_ONLY' } },
}

/** By which a server of HTTP/2 greets (RFC 9113, 6.5). */
const EMPTY_SETTINGS = Buffer.from([0, 0, 0, 4, 0, 0, 0, 0, 0])

/** Descriptions with a long command line, and with many devices. */
const board = (commandLine: string) => {
  const { specification } = DESCRIPTION
  const long = { ...specification.board, command_line: commandLine }
  return JSON.stringify({ ...DESCRIPTION, specification: { ...specification, board: long } })
}
const devices = (count: number) => {
  const many = Object.fromEntries(Array.from({ length: count }, (_, index) => [`d${index}`, { serial: {} }]))
  const specification = { ...DESCRIPTION.specification, devices: many, backends: {} }
  return JSON.stringify({ ...DESCRIPTION, specification })
}

describe('the commands for machines of a daemon', () => {
  let daemon: RunningDaemon
  let folder: string
  let env: Readonly<Record<string, string>>
  beforeEach(async () => {
    folder = temporaryFolder()
    daemon = await runMockDaemon()
    env = { MICROVM_SOCKET: daemon.daemon.socket }
  })
  afterEach(() => daemon.close())

  const run = (...words: readonly string[]) => microvm(words, { env })

  function file(name: string, value: unknown): string {
    const path = join(folder, name)
    writeFileSync(path, typeof value === 'string' ? value : JSON.stringify(value))
    return path
  }

  const ensure = (description: unknown = DESCRIPTION) => run('ensure', file('web.json', description))

  const inspected = async () => JSON.parse((await run('inspect', '--json', 'web')).stdout)

  function done(text: string): MicrovmRun {
    return { status: 0, stdout: text, stderr: '' }
  }

  function failed(status: number, text: string): MicrovmRun {
    return { status, stdout: '', stderr: `microvm: ${text}\n` }
  }

  it('clone a saved machine, of which a mock has none', async () => {
    expect(await run('clone', 'one', 'web', '--count', '0')).toMatchObject({
      status: 2,
      stderr: expect.stringContaining('--count 0: want a number from 1 on'),
    })
    expect(await run('clone', 'one', 'web', '--count', '65')).toMatchObject({
      status: 1,
      stderr: expect.stringContaining('count: 65, want 1 to 64'),
    })
    const long = `--hostname=${'h'.repeat(62)}`
    expect(await run('clone', 'one', 'web', '--count', '10', long)).toMatchObject({
      status: 1,
      stderr: expect.stringContaining('identity.hostname: 65 bytes with its number, want at most 64'),
    })
    expect(await run('clone', 'one', 'web', '--hostname', 'h', '--without-agent')).toMatchObject({
      status: 1,
      stderr: expect.stringContaining('identity: no agent takes it, want none'),
    })
    expect(await run('clone', '--running', 'template-0123456789ab', 'web')).toMatchObject({
      status: 1,
      stderr: expect.stringContaining(
        'key: template-0123456789ab: templates are called so, want it in saved',
      ),
    })
    expect(await run('clone', '--running', 'web', 'other')).toMatchObject({
      status: 1,
      stderr: expect.stringContaining('a mock has no machines that could be saved'),
    })
    expect(await run('clone', 'one', 'web', '--count', '9', long)).toMatchObject({
      status: 1,
      stderr: expect.stringContaining('a mock has no machines that could be saved'),
    })
  })

  it('resume and clone with backends in place of others, by their keys', async () => {
    const [disk, other] = [file('disk.json', DATA.backend), file('other.json', { files: {} })]
    const uuid = 'a1b2c3d4-0000-4000-8000-000000000001'
    for (const words of [
      ['resume', 'one'],
      ['clone', 'one', 'web'],
    ]) {
      const replacing = (...list: readonly string[]) =>
        run(...words, ...list.flatMap((each) => ['--replace', each]))
      const refused = (status: number, text: string | RegExp) => ({
        status,
        stderr: expect.stringMatching(text),
      })
      expect(await replacing('disk-file')).toMatchObject(
        refused(2, '--replace disk-file: give it as KEY=FILE'),
      )
      expect(await replacing(`a=${disk}`, `a=${disk}`)).toMatchObject(refused(2, 'a is given twice'))
      expect(await replacing(`a=${other}`)).toMatchObject(refused(2, `${other}: `))
      const text = `saved.replace_components.${uuid.toUpperCase()}: the same key as another`
      expect(await replacing(`${uuid}=${disk}`, `${uuid.toUpperCase()}=${disk}`)).toMatchObject(
        refused(1, text),
      )
      expect(await replacing(`a=${disk}`, `b=${disk}`)).toMatchObject(
        refused(1, /a mock has no machines that could be saved|specification: missing/),
      )
    }
  })

  it('inspect shows the timelines of operations, of which a mock has none', async () => {
    await ensure()
    expect(await run('inspect', '--timeline', 'web')).toEqual(
      done('web: no suspend, resume, clone, snapshot or revert\n'),
    )
    expect(await run('inspect', '--timeline', '--json', 'web')).toEqual(done(''))
  })

  it('ensure makes an instance once', async () => {
    expect(await ensure()).toEqual(done('web: paused\n'))
    expect(await ensure()).toEqual(done('web: paused\n'))
    expect(daemon.daemon.instances.metrics()).toContain('microvm_instances{state="paused"} 1')
  })

  it('ensure reads stdin', async () => {
    const stdin = JSON.stringify(DESCRIPTION)
    expect(await microvm(['ensure', '-'], { env, stdin })).toEqual(done('web: paused\n'))
  })

  it('ensure takes TOML', async () => {
    const toml = [
      ...['[properties]', 'key = "web"', 'labels = { app = "shop" }'],
      ...[
        '[specification.board]',
        'machine = "pc-q35-7.2"',
        'memory_mib = 256',
        'cpus = 2',
        'kernel = "/boot/vmlinuz"',
      ],
      ...['[specification.devices.disk]', 'backend = "disk-file"', 'slot = 3', 'disk = { serial = "root" }'],
      ...['[specification.backends.disk-file]', 'file = { path = "/srv/web.img", access = "READ_WRITE" }'],
    ]
    expect(await run('ensure', file('web.toml', toml.join('\n')))).toEqual(done('web: paused\n'))
    expect(await ensure()).toEqual(done('web: paused\n'))
    const { stderr } = await run('ensure', file('wrong.toml', '[properties]\n[properties]\n'))
    expect(stderr).toMatch(/wrong\.toml: not TOML: .*already.* at line \d+, column \d+\n$/)
  })

  it('ensure takes what inspect prints', async () => {
    await ensure()
    const { stdout } = await run('inspect', '--json', 'web')
    expect(await ensure(stdout)).toEqual(done('web: paused\n'))
  })

  it.each([
    ['{', /^microvm: .*web\.json: not JSON: .*\n$/],
    ['[]', /web\.json: request: \[\], want an object/],
    [
      { ...DESCRIPTION, propertys: {} },
      /web\.json: propertys: unknown field .*did you mean "properties"\?\n$/,
    ],
    [
      { specification: { board: { cpus: 'two' } } },
      /web\.json: specification\.board\.cpus: "two", want a whole number/,
    ],
  ])('ensure refuses the file %j', async (content, text) => {
    const { status, stderr, stdout } = await ensure(content)
    expect([status, stdout, stderr.split('\n').length]).toEqual([2, '', 2])
    expect(stderr).toMatch(text)
  })

  it.each([
    ['brackets', () => '['.repeat(2 ** 22), /web\.json: nested deeper than 64\n$/],
    [
      'objects',
      () => `{"properties":{"labels":${'{"a":'.repeat(2 ** 20)}`,
      /web\.json: nested deeper than 64\n$/,
    ],
    ['bytes', () => ' '.repeat(2 ** 23 + 1), /web\.json: larger than 8388608 bytes\n$/],
    [
      'escaped brackets in a text',
      () => board('\\"[{'.repeat(500)),
      /command_line: 2000 bytes, want at most/,
    ],
    [
      'text',
      () => board('x'.repeat(2 ** 22)),
      /RESOURCE_EXHAUSTED: request of \d+ bytes is larger than 4194304\n$/,
    ],
    [
      'long text',
      () => board('['.repeat(2 ** 21)),
      /INVALID_ARGUMENT: specification: \d+ bytes, want at most/,
    ],
    [
      'components',
      () => devices(65_536),
      /RESOURCE_EXHAUSTED: specification\.devices[.\w]*: more than 65536 elements/,
    ],
    [
      'devices',
      () => devices(1025),
      /INVALID_ARGUMENT: specification: 1025 devices and backends, want at most 1024/,
    ],
  ])('ensure refuses too many %s by name', async (_what, content, text) => {
    const { status, stderr } = await ensure(content())
    expect(stderr).toMatch(text)
    expect(status).toBeGreaterThan(0)
  })

  it('ensure tells that an instance of that key has another content', async () => {
    await ensure()
    const { specification } = DESCRIPTION
    const other = {
      ...DESCRIPTION,
      specification: { ...specification, board: { ...specification.board, cpus: 3 } },
    }
    const { status, stderr } = await ensure(other)
    expect(status).toBe(1)
    expect(stderr).toMatch(/^microvm: ensure: FAILED_PRECONDITION: instance web: .*differs.*\n$/)
  })

  it('start, pause, reset, stop and kill change the state', async () => {
    await ensure()
    expect(await run('start', 'web')).toEqual(done('web: running\n'))
    const { boot_id: before } = await inspected()
    expect(await run('pause', 'web')).toEqual(done('web: paused\n'))
    expect(await run('reset', 'web')).toEqual(done('web: paused\n'))
    expect((await inspected()).boot_id).not.toBe(before)
    expect(await run('stop', '--grace', '5', 'web')).toEqual(done('web: stopped\n'))
    expect(await run('start', 'web')).toEqual(done('web: running\n'))
    expect(await run('kill', 'web')).toEqual(done('web: stopped\n'))
    expect(await run('pause', 'web')).toEqual(
      failed(1, 'pause: FAILED_PRECONDITION: instance web: stopped, want it paused or running'),
    )
  })

  it('prints the instance as one line of JSON on request', async () => {
    await ensure()
    const { stdout } = await run('start', '--json', 'web')
    expect(stdout.trimEnd()).not.toContain('\n')
    expect(JSON.parse(stdout)).toMatchObject({
      properties: { key: 'web', labels: { app: 'shop' } },
      state: 'RUNNING',
      specification: { board: { memory_mib: '256', cpus: 2 } },
      backends: { 'disk-file': { health: 'READY' } },
    })
  })

  it('plug, replace and unplug change the devices', async () => {
    await ensure()
    expect(await run('plug', 'web', 'data', file('data.json', DATA))).toEqual(done('web: paused\n'))
    expect((await inspected()).specification.devices.data).toMatchObject({ backend: 'data-file', slot: 4 })
    const other = file('other.json', { file: { path: '/srv/other.img', access: 'READ_ONLY' } })
    expect(await run('replace', 'web', 'data-file', other)).toEqual(done('web: paused\n'))
    expect((await inspected()).specification.backends['data-file'].file.path).toBe('/srv/other.img')
    expect(await run('unplug', '--grace', '1', 'web', 'data')).toEqual(done('web: paused\n'))
    expect(Object.keys((await inspected()).specification.devices)).toEqual(['disk'])
  })

  it('snapshot, snapshots, revert, rm-snapshot and merge keep and forget what disks have', async () => {
    await ensure()
    const kept = done('web: one: disk (consistent: crash)\n')
    expect(await run('snapshot', '--disks', 'disk', 'web', 'one')).toEqual(kept)
    const { stdout } = await run('snapshot', '--json', 'web', 'two')
    expect(JSON.parse(stdout)).toMatchObject({
      name: 'two',
      consistency: 'CRASH',
      disks: [{ device: 'disk' }],
    })
    const listed = await run('snapshots', 'web')
    expect(listed.stdout).toMatch(
      /^NAME +AGE +CONSISTENT +MEMORY +STILL +DISKS\none +\S+ +crash +0\.0 ms +disk\ntwo /,
    )
    expect((await run('snapshot', '--memory', 'web', 'three')).stderr).toContain('memory: a mock has none')
    expect((await run('snapshot', '--without-agent', 'web', 'three')).stderr).toContain(
      'without_agent: without memory no agent is asked, want none',
    )
    expect((await run('snapshot', 'web', 'one')).stderr).toContain('snapshot one: exists already')
    expect((await run('snapshot', 'web', '../one')).stderr).toContain('name: "../one", want 1 to 64 of A-Z')
    expect((await run('revert', 'web', 'one')).stderr).toContain('not stopped, want it stopped')
    await run('kill', 'web')
    expect(await run('revert', 'web', 'one')).toEqual(done('web: stopped\n'))
    expect(await run('rm-snapshot', 'web', 'one')).toEqual(done('web: one: removed\n'))
    expect((await run('rm-snapshot', 'web', 'one')).stderr).toContain('NOT_FOUND: instance web: snapshot one')
    const { stderr } = await run('rm', 'web')
    expect(stderr).toContain('its disks are as at their oldest snapshots')
    await ensure()
    expect(await run('merge', 'web')).toEqual(done('web: all snapshots: removed\n'))
  })

  it('plug and replace name what is wrong with their file', async () => {
    await ensure()
    const empty = file('empty.json', {})
    expect(await run('plug', 'web', 'data', empty)).toEqual(
      failed(2, `${empty}: no device, want {"device": {…}}`),
    )
    const { stderr } = await run('replace', 'web', 'disk-file', file('x.json', { fille: {} }))
    expect(stderr).toMatch(/fille: unknown field .*did you mean "file"\?/)
  })

  it('rm forgets an instance', async () => {
    await ensure()
    expect(await run('rm', 'web')).toEqual(done('web: removed\n'))
    expect(await run('rm', 'web')).toEqual(failed(1, 'rm: NOT_FOUND: instance web: not found'))
    await ensure()
    expect(await run('rm', '--json', 'web')).toEqual(done('{"key":"web"}\n'))
  })

  it('ps lists the instances', async () => {
    expect((await run('ps')).stdout).toMatch(/^KEY +STATE +AGE +CPUS +MEMORY +TENANT +REASON\n$/)
    await ensure()
    const [, line] = (await run('ps')).stdout.split('\n')
    expect(line).toMatch(/^web +paused +\d+ms +2 +256 MiB/)
    expect(await run('ps', '--json')).toEqual(done((await run('inspect', '--json', 'web')).stdout))
  })

  it('inspect shows all of an instance', async () => {
    await ensure()
    const { status, stdout } = await run('inspect', 'web')
    expect(status).toBe(0)
    expect(stdout.split('\n').length).toBeGreaterThan(20)
    expect(JSON.parse(stdout)).toEqual(await inspected())
    expect(await run('inspect', 'db')).toEqual(failed(1, 'inspect: NOT_FOUND: instance db: not found'))
    expect((await run('inspect', 'a/b')).stderr).toMatch(/^microvm: inspect: INVALID_ARGUMENT: .*a\/b.*\n$/)
  })

  it('calls lists the calls that have not ended', async () => {
    await ensure()
    const following = new Interruptions()
    const seen = Promise.withResolvers<void>()
    const events = microvm(['events', '-f'], {
      env,
      interruptions: following,
      onOutput: () => seen.resolve(),
    })
    await seen.promise
    expect((await run('calls')).stdout).toMatch(/^CALL +METHOD .*\n\d+ +WatchInstances .*\n\d+ +ListCalls /)
    const [first = ''] = (await run('calls', '--json')).stdout.split('\n')
    expect(JSON.parse(first)).toMatchObject({ method: 'microvm.instance.v1.InstanceService/WatchInstances' })
    following.receive('SIGTERM')
    await events
  })

  it('metrics prints the figures of the daemon', async () => {
    await ensure()
    const { status, stdout } = await run('metrics')
    expect([status, stdout]).toEqual([0, expect.stringContaining('microvm_instances{state="paused"} 1\n')])
  })

  it('shows on a terminal what is waited for', async () => {
    const stdin = JSON.stringify(DESCRIPTION)
    const { stderr } = await microvm(['ensure', '-'], { env, stdin, isTerminal: true })
    expect(stderr).toBe('microvm: making web …\r\x1b[K')
  })

  it.each([
    [
      ['pause', 'web'],
      'pause: no answer in time, and the change may go on: see ./microvm ps; wait longer with --timeout',
    ],
    [['ps'], 'ps: no answer in time; wait longer with --timeout'],
  ])('%j gives up a daemon that does not answer', async (words, text) => {
    const socket = join(folder, 'silent.sock')
    let greeting = EMPTY_SETTINGS
    const server = createServer((client) =>
      client
        .on('error', () => {})
        .resume()
        .write(greeting),
    )
    server.listen(socket)
    try {
      expect(await run(...words, '--socket', socket, '--timeout', '1')).toEqual(failed(1, text))
      greeting = Buffer.alloc(0)
      const silent = `daemon at ${socket}: does not answer; it is stopped or hangs`
      expect(await run(...words, '--socket', socket, '--timeout', '1')).toEqual(failed(125, silent))
    } finally {
      server.close()
    }
  })

  it('events shows the changes so far', async () => {
    await ensure()
    await run('start', 'web')
    const lines = (await run('events')).stdout.trimEnd().split('\n')
    expect(lines).toHaveLength(3)
    expect(lines[2]).toMatch(/^\d{4}-\d\d-\d\dT[\d:.]+Z {2}3 {2}web {2}state {2}The machine is running\.$/)
    const { stdout } = await run('events', '--json', '--after', '2')
    expect(JSON.parse(stdout)).toMatchObject({ sequence: '3', key: 'web', kind: 'state', state: 'RUNNING' })
  })

  it('events --follow shows further changes until a signal ends it', async () => {
    const interruptions = new Interruptions()
    const seen = Promise.withResolvers<void>()
    const following = microvm(['events', '-f'], {
      env,
      interruptions,
      onOutput: (text) => {
        if (text.includes('paused')) seen.resolve()
      },
    })
    await ensure()
    await seen.promise
    interruptions.receive('SIGTERM')
    expect(await following).toMatchObject({ status: 143, stderr: '' })
  })

  it('console connects to the console, and leaves it at the detach keys', async () => {
    await ensure()
    const stdin = new PassThrough()
    const echoed = Promise.withResolvers<void>()
    const running = microvm(['console', 'web'], {
      env,
      stdin,
      onOutput: (text) => {
        if (text.endsWith('ls\r')) echoed.resolve()
      },
    })
    stdin.write('ls\r')
    await echoed.promise
    stdin.write('\x10\x11')
    expect(await running).toEqual({
      status: 0,
      stdout: 'ls\r',
      stderr: '\r\nmicrovm: detached; the guest goes on\r\n',
    })
  })

  it('console tells that there is no such instance', async () => {
    expect(await run('console', 'web')).toEqual(failed(1, 'console: NOT_FOUND: instance web: not found'))
  })

  it('console passes more than one message holds', async () => {
    await ensure()
    const stdin = new PassThrough()
    const bytes = 300_000
    const all = Promise.withResolvers<void>()
    const running = microvm(['console', 'web'], {
      env,
      stdin,
      onOutput: (text) => {
        if (text.length === bytes) all.resolve()
      },
    })
    stdin.write('x'.repeat(bytes))
    await all.promise
    stdin.write('\x10\x11')
    expect((await running).status).toBe(0)
  })

  it.each([
    ['ps'],
    ['inspect', 'web'],
    ['start', 'web'],
    ['rm', 'web'],
    ['unplug', 'web', 'data'],
    ['events'],
    ['console', 'web'],
  ])('%s says in one line that no daemon runs', async (...words) => {
    expect(await microvm([...words, '--socket', '/nowhere/admin.sock'])).toEqual(
      failed(
        125,
        'daemon at /nowhere/admin.sock: does not run; start it with ./microvm daemon, or name its socket with --socket or MICROVM_SOCKET',
      ),
    )
  })
})
