import { readFileSync, rmSync, statSync, truncateSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { stripVTControlCharacters } from 'node:util'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { buildAgentCtl, CTL_INSTALLED } from '../../../src/build/agent-ctl.ts'
import { pinnedNode } from '../../../src/build/project.ts'
import { cuttingProxy } from '../../support/ctl/cutting-proxy.ts'
import { type AgentPod, startPod } from '../../support/host/agent-pod.ts'
import { processes } from '../../support/processes.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import { expectShell, Terminal } from '../../support/terminal.ts'

/** The installed commands for people, each on its own terminal, all on one agent. */
describe('agent-ctl in a session on a terminal', () => {
  let tool: readonly string[]
  let pod: AgentPod
  let env: Record<string, string>
  beforeAll(async () => {
    tool = [pinnedNode(), join(await buildAgentCtl(), 'installed', CTL_INSTALLED.start)]
    pod = await startPod({ outputReplayBytes: 4096 })
    env = { AGENT_CTL_ADDRESS: `unix://${pod.started.path}`, HOME: temporaryFolder(), TERM: 'xterm' }
    await pod.run('web', ['sh', '-c', 'exec sleep 1000'])
    await pod.add('web', 'gone', ['sh', '-c', 'exit 3']).then((gone) => gone.wait())
  })
  afterAll(() => pod.stop())

  const start = (words: readonly string[], columns = 77) =>
    new Terminal([...tool, ...words], { env, columns })
  /** A shell with job control; it restores no terminal modes after its jobs. */
  const startShell = () => new Terminal(['sh', '-i'], { env: { ...env, PS1: 'prompt> ' } })
  const commandLine = (...words: readonly string[]) => [...tool, ...words].join(' ')

  describe.each([
    ['ps', /^CONTAINER +PID +ROLE/, 'table'],
    ['exits', /^PROCESS +END.*\nweb\/gone +status 3/, 'table'],
    ['stats', /^CONTAINER +CPU TIME.*\nweb /, 'table'],
    ['net', /^\S+.*\n(.*\n)*address +lo /, 'table'],
    ['mounts', /^MOUNT POINT/, 'table'],
    ['devices', /^KIND +NAME/, 'table'],
    ['capabilities', /^file system tmpfs +yes/m, 'table'],
    ['calls', /^CALL +AGE/, 'table'],
    ['inspect web', /"containerId": "web"/, 'text'],
    ['stacks', /^\d+\/\d+ .*: /, 'text'],
    ['bench --calls 20', /^Check: 20 calls, p50 [\d.]+ ms, .* a second\n$/, 'text'],
    ['profile cpu --seconds 1', /profile: [\d.]+ [KM]iB, for /, 'text'],
    ['profile heap', /profile: [\d.]+ MiB, for /, 'text'],
    ['doctor', /^the whole report: agent-ctl doctor > FILE$/m, 'text'],
  ])('%s', (words, shown, kind) => {
    it.each([77, 10])('writes on a terminal of %d columns, and ends', async (columns) => {
      const file = words.startsWith('profile') ? [join(temporaryFolder(), 'profile')] : []
      const terminal = start([...words.split(' '), ...file], columns)
      // The report has no findings, or has them in its first lines.
      expect(await terminal.exited).toBeLessThanOrEqual(words === 'doctor' ? 1 : 0)
      const text = stripVTControlCharacters(terminal.unread).replaceAll('\r\n', '\n')
      if (columns === 77) expect(text).toMatch(shown)
      if (kind === 'table') expect(text.split('\n').filter((line) => line.length > columns)).toEqual([])
    })
  })

  it.each<[string, string, (written: Terminal) => Promise<void>]>([
    [
      'events -f',
      'agent started',
      async (terminal) => {
        await pod.add('web', 'eventful', ['sleep', '1000'])
        await terminal.shows('web/eventful started')
      },
    ],
    [
      'stats --watch 0.2 web',
      'CPU SINCE',
      async (terminal) => {
        // The second look replaces the first and adds a share and its chart.
        await terminal.shows('\x1b[H\x1b[J')
        await terminal.shows(' %')
        await terminal.shows('▁')
      },
    ],
    [
      'logs -f web talker',
      'first line',
      async (terminal) => {
        await pod.agent.writeStdin({ containerId: 'web', execId: 'talker', data: Buffer.from('second\n') })
        await pod.agent.readStdout({ containerId: 'web', execId: 'talker', len: 100 })
        await terminal.shows('second')
      },
    ],
  ])('%s shows what comes, until Ctrl-C', async (words, shown, more) => {
    if (words.startsWith('logs')) {
      const talker = await pod.add('web', 'talker', ['sh', '-c', 'echo first line; exec cat'])
      await talker.readUntil('first line')
    }
    const terminal = start(words.split(' '))
    await terminal.shows(shown)
    await more(terminal)
    terminal.type('\x03')
    expect(await terminal.exited).toBe(130)
  })

  it('run -it is a shell in its own container, which is removed afterwards', async () => {
    await expectShell(start(['run', '-it', '--rootfs', pod.root, '--id', 'own', 'sh']))
    await expect(pod.agent.statsContainer({ containerId: 'own' })).rejects.toThrow('invalid container id')
  })

  it('record shows what it does, and replay how the answers differ', async () => {
    const folder = temporaryFolder()
    const [file, address] = [join(folder, 'calls.jsonl'), `unix://${join(folder, 'recorder.sock')}`]
    const recorder = start(['record', file, '--listen', address, '--once'])
    await recorder.shows(`agent-ctl: recording what connects to ${address}`)
    expect(await start(['-a', address, 'Version']).exited).toBe(0)
    expect(await recorder.exited).toBe(0)
    const same = start(['replay', file])
    await same.shows('calls: 2 calls, 0 differences')
    expect(await same.exited).toBe(0)
    writeFileSync(file, readFileSync(file, 'utf8').replace('"code":0', '"code":5'))
    const other = start(['replay', file])
    await other.shows('calls: 2 calls, 1 difference')
    expect(await other.exited).toBe(1)
  })

  it.each(['ttrpc', 'grpc'])(
    'gives the terminal back when the agent closes the connection of exec over %s',
    async (protocol) => {
      const proxy = await cuttingProxy(pod.started.path)
      const terminal = startShell()
      await terminal.shows('prompt> ')
      const exec = [
        '-a',
        proxy.address,
        '--reconnect',
        '0',
        '--protocol',
        protocol,
        'exec',
        '-it',
        'web',
        'sh',
      ]
      terminal.type(`${commandLine(...exec)}\n`)
      await terminal.shows('# ')
      terminal.type('echo in""side\n')
      await terminal.shows('inside')
      proxy.close()
      await terminal.shows(
        'the process: the agent closed the connection before its answer; its log tells why',
      )
      terminal.type('echo "status $?" "mode" $(stty -a | grep -oE "[-]?icanon")\n')
      await terminal.shows('status 125 mode icanon')
      terminal.type('exit\n')
      expect(await terminal.exited).toBe(0)
    },
  )

  it('cp shows its progress on a terminal only, and erases it', async () => {
    const folder = temporaryFolder()
    // Even on a fast machine, copying this much takes longer than the 200 ms before progress is shown.
    writeFileSync(join(folder, 'huge'), '')
    truncateSync(join(folder, 'huge'), 128 << 20)
    const shown = start(['cp', join(folder, 'huge'), 'web:/tmp'])
    await shown.shows('/s)')
    expect(await shown.exited).toBe(0)
    expect(shown.unread.endsWith('\r\x1b[K')).toBe(true)
    rmSync(join(folder, 'huge'))
    const quiet = new Terminal(
      ['sh', '-c', `${commandLine('cp', 'web:/tmp/huge', folder)} 2>${folder}/err`],
      { env },
    )
    expect([await quiet.exited, quiet.unread, readFileSync(join(folder, 'err'), 'utf8')]).toEqual([0, '', ''])
    expect(statSync(join(folder, 'huge')).size).toBe(128 << 20)
  })

  it('attach joins a terminal, is left by the detach keys, and ends with the status that its owner gets', async () => {
    const owner = await pod.run('talk', ['sh'], { terminal: true })
    const first = start(['attach', 'talk'])
    first.type('echo "size" "$(stty size)"; A=kept\n')
    await first.shows('size 33 77')
    first.type('\x10\x11')
    await first.shows('agent-ctl: detached from talk')
    expect(await first.exited).toBe(0)
    const second = start(['attach', 'talk'], 60)
    second.type('until [ "$(stty size)" = "33 60" ]; do sleep 0.1; done; echo "A is" $A; exit 6\n')
    await second.shows('A is kept')
    expect(await second.exited).toBe(6)
    expect(await owner.wait()).toBe(6)
    await pod.remove('talk')
  })

  it('attach ends with the status also when the owner has it first, and the agent has forgotten the process', async () => {
    const owned = await pod.add('web', 'owned', ['sh', '-c', 'read line; exit 4'])
    const status = owned.wait()
    const terminal = start(['attach', 'web', 'owned'])
    terminal.type('end\n')
    expect(await status).toBe(4)
    expect(await terminal.exited).toBe(4)
  })

  it('attach leaves a process without a terminal alone, at Ctrl-C and at the end of stdin', async () => {
    await pod.add('web', 'cat', ['cat'])
    const typed = start(['attach', 'web', 'cat'])
    typed.type('typed\n')
    await typed.shows('typed')
    await typed.shows('typed')
    typed.type('\x03')
    expect(await typed.exited).toBe(130)
    const piped = new Terminal(['sh', '-c', `echo piped | ${commandLine('attach', 'web', 'cat')}`], { env })
    await piped.shows('piped')
    await pod.agent.closeStdin({ containerId: 'web', execId: 'cat' })
    expect(await piped.exited).toBe(0)
    const gone = start(['attach', 'web', 'nope'])
    await gone.shows('process "nope": not found; see agent-ctl ps web')
    expect(await gone.exited).toBe(125)
  })

  it('console passes keys on until the detach keys', async () => {
    const path = join(temporaryFolder(), 'vmm.sock')
    // Stands for a VMM; its guest's console answers in capitals.
    const server = createServer((socket) => {
      socket.once('data', () => {
        socket.write('OK 1\nconsole# ')
        socket.on('data', (keys) => socket.write(keys.toString().toUpperCase()))
      })
    })
    await new Promise<void>((resolve) => server.listen(path, resolve))
    const terminal = start(['-a', `hvsock://${path}`, 'console'])
    await terminal.shows('console# ')
    terminal.type('keys\x03')
    await terminal.shows('KEYS\x03')
    terminal.type('\x10\x11')
    await terminal.shows('agent-ctl: detached; the console ends')
    expect(await terminal.exited).toBe(0)
    server.close()
  })

  it('gives the terminal back while exec is suspended, and takes it again with its new size', async () => {
    const terminal = startShell()
    await terminal.shows('prompt> ')
    terminal.type(`${commandLine('exec', '-it', 'web', 'sh')}\n`)
    await terminal.shows('# ')
    terminal.type('echo in""side\n')
    await terminal.shows('inside')
    process.kill(childOf(terminal.pid), 'SIGTSTP')
    await terminal.shows('Stopped')
    terminal.resize(90, 30)
    terminal.type('echo "mode" $(stty -a | grep -oE "[-]?icanon")\n')
    await terminal.shows('mode icanon')
    terminal.type('fg\n')
    // Without raw mode the terminal would hold the keys of a line, and Ctrl-C would end the tool.
    await terminal.shows('agent-ctl')
    terminal.type('until [ "$(stty size)" = "30 90" ]; do sleep 0.1; done; echo re""sized\n')
    await terminal.shows('resized')
    terminal.type('sh -c \'echo st""arted; exec sleep 1000\'\n')
    await terminal.shows('started')
    terminal.type('\x03echo al""ive $?\n')
    await terminal.shows('alive 130')
    terminal.type('exit\n')
    await terminal.shows('prompt> ')
    terminal.type('exit\n')
    expect(await terminal.exited).toBe(0)
  })

  it.each([
    ['shell', 'agent-ctl> ', 'exits\n', 'web/gone'],
    ['events -f', 'agent started', undefined, undefined],
  ])('%s is suspended by Ctrl-Z, and continues', async (words, ready, typed, answer) => {
    const terminal = startShell()
    await terminal.shows('prompt> ')
    terminal.type(`${commandLine(words)}\n`)
    await terminal.shows(ready)
    terminal.type('\x1a')
    await terminal.shows('Stopped')
    terminal.type('echo "mode" $(stty -a | grep -oE "[-]?icanon"); fg\n')
    await terminal.shows('mode icanon')
    if (typed === undefined) {
      await terminal.shows('agent-ctl')
      const after = await pod.add('web', 'after', ['true'])
      expect(await after.wait()).toBe(0)
      await terminal.shows('web/after started')
      terminal.type('\x03')
    } else {
      await terminal.shows(ready)
      terminal.type(typed)
      await terminal.shows(answer)
      await terminal.shows(ready)
      terminal.type('\x04')
    }
    await terminal.shows('prompt> ')
    terminal.type('exit\n')
    await terminal.exited
  })
})

function childOf(parent: number): number {
  const child = processes().find((each) => each.parent === parent)
  if (child === undefined) throw new Error(`process ${parent} has no child`)
  return child.pid
}
