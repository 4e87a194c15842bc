import { execFileSync } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import { createServer as createHttp2Server } from 'node:http2'
import { connect, createServer, type Socket } from 'node:net'
import { join } from 'node:path'
import { styleText } from 'node:util'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { Interruptions } from '../../../src/client/terminal/interruptions.ts'
import { referenceLines } from '../../recordings/reference-commands.ts'
import { busyboxRoot } from '../../support/containers/busybox-root.ts'
import { type CtlRun, ctl } from '../../support/ctl/run-ctl.ts'
import { type AgentPod, leftoversOf, startPod } from '../../support/host/agent-pod.ts'
import { startAgent } from '../../support/host/agent-process.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

describe('agent-ctl on a real agent', () => {
  let pod: AgentPod
  let address: string
  beforeAll(async () => {
    pod = await startPod()
    address = `unix://${pod.started.path}`
    await pod.run('web', ['sh', '-c', 'exec sleep 1000'])
  })
  afterAll(() => pod.stop())

  const run = (...words: readonly string[]): Promise<CtlRun> => ctl(['-a', address, ...words])

  it.each(['ttrpc', 'grpc'])('makes calls by name over %s', async (protocol) => {
    const check = await run('--protocol', protocol, 'Check')
    expect(check).toEqual({ status: 0, stdout: '{\n  "status": "SERVING"\n}\n', stderr: '' })
    const failed = await run('--protocol', protocol, 'StartContainer', 'container_id=nope')
    expect(failed).toMatchObject({ status: 1, stdout: '' })
    expect(failed.stderr).toMatch(/^agent-ctl: StartContainer: [A-Z_]+: .*\n$/)
  })

  it.each(['ttrpc', 'grpc'])('refuses a request of 5 MB over %s before it is sent', async (protocol) => {
    const file = join(temporaryFolder(), 'large')
    writeFileSync(file, Buffer.alloc(5_000_000))
    const { status, stderr } = await run('--protocol', protocol, 'CopyFile', 'path=/x', `data=file:${file}`)
    expect(status).toBe(1)
    expect(stderr).toMatch(
      /^agent-ctl: CopyFile: RESOURCE_EXHAUSTED: request of \d+ bytes is larger than 4194304\n$/,
    )
  })

  it.each(['ttrpc', 'grpc'])('gives up a call at its time limit over %s', async (protocol) => {
    const words = ['--protocol', protocol, '--timeout', '50ms', 'WaitProcess', 'container_id=web']
    const { status, stderr } = await run(...words)
    expect(status).toBe(1)
    // The agent's gRPC library enforces the same limit, and may be first.
    expect(stderr).toMatch(/^agent-ctl: WaitProcess: DEADLINE_EXCEEDED: (timeout|Deadline exceeded)\n$/)
  })

  it('freezes and thaws the pod, and names a frozen one', async () => {
    expect(await run('quiesce', '--for', '50s')).toMatchObject({
      status: 0,
      stdout: 'frozen: container web\n',
    })
    expect((await run('quiesce')).stderr).toMatch(
      /^agent-ctl: Quiesce: FAILED_PRECONDITION: the pod is frozen/,
    )
    expect((await run('doctor')).stdout).toMatch(
      /the pod is frozen \(1 containers, 0 file systems\), for \d+s at most/,
    )
    expect(await run('thaw')).toMatchObject({ status: 0, stdout: 'thawed: the pod was at rest until now\n' })
    expect(await run('-o', 'json', 'thaw')).toMatchObject({ status: 1, stdout: '{"wasFrozen":false}\n' })
  })

  it('runs a program with its streams and its status', async () => {
    const words = ['-a', address, 'exec', '-i', 'web', 'sh', '-c', 'cat; echo err >&2; exit 7']
    expect(await ctl(words, { stdin: 'in\n' })).toEqual({ status: 7, stdout: 'in\n', stderr: 'err\n' })
  })

  it('gives a program its environment, folder and user', async () => {
    const script = 'echo $A; pwd; id -u; id -g'
    const run1 = await run('exec', '-e', 'A=b', '-w', '/tmp', '-u', '5:6', 'web', 'sh', '-c', script)
    expect(run1).toMatchObject({ status: 0, stdout: 'b\n/tmp\n5\n6\n' })
  })

  it('looks the names of a user and a group up in the container, and on the root of a new one', async () => {
    writeFileSync(join(pod.root, 'etc/passwd'), 'root:x:0:0::/:/bin/sh\nweb:x:101:102::/:/bin/sh\n')
    writeFileSync(join(pod.root, 'etc/group'), 'root:x:0:\naudio:x:63:root,web\nstaff:x:50:\n')
    const ids = ['sh', '-c', 'id -u; id -G']
    expect(await run('exec', '-u', 'web', 'web', ...ids)).toEqual({
      ...{ status: 0, stdout: '101\n102 63\n', stderr: '' },
    })
    expect((await run('exec', '-u', 'web:staff', 'web', ...ids)).stdout).toBe('101\n50\n')
    const own = ['run', '--rootfs', pod.root, '--id', 'own']
    expect((await run(...own, '-u', '7:audio', ...ids)).stdout).toBe('7\n63\n')
    const stderr = `agent-ctl: --user: user "bob": not in the container's /etc/passwd, want a name from there or a number\n`
    expect(await run('exec', '-u', 'bob', 'web', ...ids)).toEqual({ status: 125, stdout: '', stderr })
    expect(await run(...own, '-u', 'bob', ...ids)).toEqual({ status: 125, stdout: '', stderr })
    expect(leftoversOf(pod.started, 'own')).toMatchObject({ mounts: [], cgroups: [], bundles: [] })
    expect(await run(...own.with(2, busyboxRoot(temporaryFolder(), ['sh'])), '-u', 'bob', 'sh')).toEqual({
      status: 125,
      stdout: '',
      stderr: 'agent-ctl: --user: the container has no cat to look names up with, want numbers\n',
    })
  })

  it('runs the examples of the calls of a process as their help prints them', async () => {
    const answers: Readonly<Record<string, unknown>> = {
      ExecProcess: {},
      WriteStdin: { len: 4 },
      ReadStdout: { data: { text: 't' } },
      CloseStdin: {},
      WaitProcess: { status: 0 },
    }
    for (const [method, answer] of Object.entries(answers)) {
      const help = (await ctl([method, '--help'])).stdout
      const words = help.slice(help.indexOf('Example:')).trim().split(/\s+/).slice(2)
      const { status, stderr, stdout } = await run(...words)
      expect([method, status, stderr]).toEqual([method, 0, ''])
      expect(JSON.parse(stdout)).toEqual(answer)
    }
  })

  it('runs a program in a container of its own, which is gone afterwards', async () => {
    const words = ['run', '--rootfs', pod.root, '--id', 'own', '-e', 'A=b', 'sh', '-c', 'echo $A; exit 3']
    expect(await run(...words)).toEqual({ status: 3, stdout: 'b\n', stderr: '' })
    expect((await run('run', '--rootfs', pod.root, '--id', 'own', 'nope')).status).toBe(127)
    expect(leftoversOf(pod.started, 'own')).toMatchObject({ mounts: [], cgroups: [], bundles: [] })
  })

  it('removes the container of an interrupted run', async () => {
    const interruptions = new Interruptions()
    const words = ['-a', address, 'run', '--rootfs', pod.root, '--id', 'cut', '-t', 'sleep', '1000']
    const running = ctl(words, { interruptions })
    await pod.started.logged({ rpc: 'grpc.AgentService/StartContainer', containerId: 'cut' })
    interruptions.receive('SIGTERM')
    expect(await running).toMatchObject({ status: 143, stdout: '' })
    expect(leftoversOf(pod.started, 'cut')).toMatchObject({ mounts: [], cgroups: [], bundles: [] })
  })

  it('lists processes, also on a terminal of 10 columns', async () => {
    await pod.add('web', 'side', ['sleep', '1000'])
    const wide = await ctl(['-a', address, 'ps', 'web'], { columns: 120, env: { NO_COLOR: '1' } })
    expect(wide.stdout).toMatch(/^CONTAINER +PID +ROLE +PROCESS +STATE +AGE +MEMORY /)
    expect(wide.stdout).toMatch(/^web +\d+ +init /m)
    expect(wide.stdout).toMatch(/^web +\d+ +exec +side /m)
    expect(wide.stdout).not.toContain('\x1b')
    const colored = await ctl(['-a', address, 'ps', '--color', 'always', 'web'])
    // The ages and the memory, and so the column widths, change from call to call.
    const header = ({ stdout }: CtlRun) => (stdout.split('\n')[0] ?? '').replace(/ +/g, ' ')
    expect(header(colored)).toBe(styleText('bold', header(wide), { validateStream: false }))
    const narrow = await ctl(['-a', address, 'ps', 'web'], { columns: 10, env: { NO_COLOR: '1' } })
    expect(
      narrow.stdout
        .trimEnd()
        .split('\n')
        .filter((line) => line.length > 10),
    ).toEqual([])
    const rows = (await run('-o', 'json', 'ps', 'web')).stdout
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line))
    expect(rows.map(({ execId }) => execId)).toContain('side')
    expect((await run('ps', '--all')).stdout).toMatch(/ agent /)
  })

  it('lists calls that have not been answered', async () => {
    const interruptions = new Interruptions()
    const waiting = ctl(['-a', address, 'WaitProcess', 'container_id=web', 'exec_id=web'], { interruptions })
    let shown = await run('calls')
    while (!shown.stdout.includes('WaitProcess')) shown = await run('calls')
    expect(shown.stdout).toMatch(/^WaitProcess +\d+ms +\S/m)
    interruptions.receive('SIGINT')
    expect((await waiting).status).toBe(130)
  })

  it('shows what containers use, once or repeatedly', async () => {
    const once = await run('stats')
    expect(once).toMatchObject({ status: 0, stderr: '' })
    expect(once.stdout).toMatch(/^web +\d+\.\d\d s +[\d.]+ [KM]iB /m)
    const interruptions = new Interruptions()
    const words = ['-a', address, '-o', 'json', 'stats', '--watch', '0.05', 'web']
    const watching = ctl(words, {
      interruptions,
      onOutput: (text) => /"cpuPercent"/.test(text) && interruptions.receive('SIGINT'),
    })
    const { status, stdout } = await watching
    expect(status).toBe(130)
    const [first = '', second = ''] = stdout.split('\n')
    expect(JSON.parse(first)).toMatchObject({ containerId: 'web', cpuNs: expect.any(String) })
    expect(JSON.parse(second)).toMatchObject({ cpuPercent: expect.any(Number) })
  })

  it.each([
    ['policy check FILE', ''],
    ['policy set FILE', ''],
    ['profile cpu FILE', ''],
    ['replay FILE', ''],
    ['--record FILE Check', 'recording: '],
    ['record --listen unix:///nonexistent/x FILE', 'recording: '],
    ['cp FILE web:/tmp', ''],
    ['cp --guest FILE /tmp', ''],
  ])('names the file that %s cannot open', async (line, role) => {
    const failed = await run(...line.replace('FILE', '/nonexistent/file').split(' '))
    expect(failed.stderr).toBe(`agent-ctl: ${role}/nonexistent/file: no such file or directory\n`)
  })

  it.each([
    ['nope', 127],
    ['/etc', 126],
  ])('ends with docker’s status when %s cannot run', async (program, status) => {
    const failed = await run('exec', 'web', program)
    expect(failed.status).toBe(status)
    expect(failed.stderr).toContain(`agent-ctl: ExecProcess: INTERNAL: the file ${program} `)
  })

  it('ends with 125 when the container is missing', async () => {
    expect(await run('exec', 'nope', 'sh')).toMatchObject({ status: 125, stdout: '' })
  })

  it("runs the reference's own command lines", async () => {
    const folder = temporaryFolder()
    const source = join(folder, 'file')
    writeFileSync(source, Buffer.alloc(3 << 20, 'x'))
    writeFileSync(
      join(folder, 'config.json'),
      JSON.stringify({
        ociVersion: '1.0.2',
        process: { args: ['true'], cwd: '/', env: ['PATH=/bin'], user: { uid: 0, gid: 0 } },
      }),
    )
    const target = '/run/kata-containers/shared/containers/ctl/file'
    const env = { ADDRESS: address, BUNDLE: folder, FILE: source, TARGET: target }
    let all = ''
    for (const { calls, script } of referenceLines()) {
      const { status, stderr, stdout } = await ctl(wordsOf(script, env))
      expect(status, `${script}: ${stderr}`).toBe(0)
      expect(stderr === '', script).toBe(!script.includes('--ignore-errors'))
      const made = [...stdout.matchAll(/^\{"call":"(\w+)"/gm)].map(([, name]) => name)
      expect(made, script).toEqual(calls)
      all += stdout
    }
    expect(all).toContain('{"call":"WaitProcess","answer":{"status":0}}')
    expect(all).toContain('done\n')
    expect(readFileSync(pod.started.inside(target))).toEqual(Buffer.alloc(3 << 20, 'x'))
  })

  it('stops a reference’s run at the first failure, unless failures are to be ignored', async () => {
    const words = ['connect', '-c', 'StartContainer cid=nope', '-c', 'Check']
    expect(await run(...words)).toMatchObject({ status: 1, stdout: '' })
    const ignoring = await run(...words, '--ignore-errors', 'true')
    expect(ignoring).toMatchObject({ status: 0, stdout: '{"call":"Check","answer":{"status":"SERVING"}}\n' })
    expect(ignoring.stderr).toContain('agent-ctl: StartContainer: ')
  })

  it('writes calls and answers to a recording', async () => {
    const file = join(temporaryFolder(), 'x.jsonl')
    await run('--record', file, 'connect', '--ignore-errors', '-c', 'WaitProcess cid=nope', 'Check')
    const lines = readFileSync(file, 'utf8')
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line))
    expect(lines.map(({ event, method }) => event ?? method)).toEqual([
      ...['open', 'grpc.AgentService/WaitProcess', 'grpc.Health/Check', 'close'],
    ])
    expect(lines[2]).toMatchObject({ code: 0, response: { status: 1 } })
    expect(lines[1]).toMatchObject({ code: expect.any(Number), request: { containerId: 'nope' } })
  })
})

describe('agent-ctl where the agent is not', () => {
  async function serve(onConnection: (socket: Socket) => void): Promise<{ address: string; close(): void }> {
    const path = join(temporaryFolder(), 'socket')
    const server = createServer((socket) => onConnection(socket.on('error', () => {})))
    await new Promise<void>((resolve) => server.listen(path, resolve))
    return { address: `unix://${path}`, close: () => server.close() }
  }

  it.each([
    ['unix:///nonexistent', 'no such socket; check the path, or wait for the agent with --wait'],
    ['unix:///etc/passwd', 'nothing listens there; check the address, or wait for the agent with --wait'],
    ['tcp://127.0.0.1:1', 'nothing listens there; check the address, or wait for the agent with --wait'],
  ])('says what is wrong with %s, in one line', async (address, reason) => {
    expect(await ctl(['-a', address, 'Check'])).toEqual({
      status: 125,
      stdout: '',
      stderr: `agent-ctl: ${address}: ${reason}\n`,
    })
  })

  it.each([
    ['an HTTP/1 server', (socket: Socket) => void socket.end('HTTP/1.1 400 Bad Request\r\n\r\n')],
    ['an SSH server', (socket: Socket) => void socket.write('SSH-2.0-x\r\n')],
    ['a service that answers "garbage!"', (socket: Socket) => void socket.write('garbage!')],
    ['a service that closes the connection without an answer', (socket: Socket) => void socket.end()],
    ['a TLS server', (socket: Socket) => void socket.write(Buffer.from([0x15, 3, 3, 0, 2, 2, 10]))],
  ])('names %s', async (name, answer) => {
    const { address, close } = await serve((socket) => void socket.once('data', () => answer(socket)))
    const { status, stderr } = await ctl(['-a', address, 'Check'])
    close()
    expect(status).toBe(125)
    expect(stderr).toBe(
      `agent-ctl: ${address}: ${name}, not the agent; check the path (a VMM socket wants hvsock://PATH:PORT)\n`,
    )
  })

  it.each([
    ['ttrpc', 'try --protocol grpc'],
    ['grpc', 'check the path (a VMM socket wants hvsock://PATH:PORT)'],
  ])('names a foreign HTTP/2 server, asked over %s', async (protocol, remedy) => {
    const foreign = createHttp2Server((_request, response) => void response.writeHead(404).end())
    foreign.on('sessionError', () => {})
    const path = join(temporaryFolder(), 'socket')
    await new Promise<void>((resolve) => foreign.listen(path, resolve))
    const { status, stderr } = await ctl(['-a', `unix://${path}`, '--protocol', protocol, 'Check'])
    foreign.close()
    expect([status, stderr]).toEqual([
      125,
      `agent-ctl: unix://${path}: an HTTP/2 server, such as gRPC, not the agent; ${remedy}\n`,
    ])
  })

  it('says that a service answers nothing', async () => {
    const { address, close } = await serve(() => {})
    const { status, stderr } = await ctl(['-a', address, '--wait', '0.2', 'Check'])
    close()
    const what = 'a service that answers nothing, not the agent, or one that hangs'
    const remedy = 'check the path (a VMM socket wants hvsock://PATH:PORT)'
    expect([status, stderr]).toEqual([
      125,
      `agent-ctl: ${address}: no answer within 0.2 s: ${what}; ${remedy}\n`,
    ])
  })

  it('says that the agent was too slow, when it answers the next time', async () => {
    const agent = await startAgent()
    let isFirst = true
    const { address, close } = await serve((socket) => {
      if (isFirst) socket.once('data', () => socket.end())
      else socket.pipe(connect(agent.path).on('error', () => {})).pipe(socket)
      isFirst = false
    })
    const { status, stderr } = await ctl(['-a', address, 'Check'])
    close()
    await agent.stop()
    expect([status, stderr]).toEqual([
      125,
      `agent-ctl: ${address}: the agent was too slow, and answers now; wait for it with --wait\n`,
    ])
  })

  it('says that the agent closed the connection in the middle of a call', async () => {
    const pod = await startPod()
    const { address, close } = await serve((socket) => {
      const agent = connect(pod.started.path)
      agent.on('error', () => {}).pipe(socket)
      socket.once('data', (check) => {
        agent.write(check)
        socket.once('data', () => socket.destroy())
      })
    })
    const { status, stderr } = await ctl(['-a', address, 'GetOOMEvent'])
    close()
    await pod.stop()
    expect(status).toBe(125)
    expect(stderr).toBe(
      'agent-ctl: GetOOMEvent: the agent closed the connection before its answer; its log tells why\n',
    )
  })

  it('waits as long as requested, and no longer', async () => {
    const { status, stderr } = await ctl(['-a', 'unix:///nonexistent', '--wait', '0.2', 'Check'])
    expect(status).toBe(125)
    expect(stderr).toBe(
      'agent-ctl: unix:///nonexistent: no answer within 0.2 s: no such socket; check the path, or wait for the agent with --wait\n',
    )
  })

  it('connects as soon as the agent listens', async () => {
    const path = join(temporaryFolder(), 'late.sock')
    const waiting = ctl(['-a', `unix://${path}`, '--wait', '20', 'Check'])
    const pod = await startPod()
    const proxy = createServer((socket) => {
      const agent = connect(pod.started.path)
      agent.on('error', () => {})
      socket
        .on('error', () => {})
        .pipe(agent)
        .pipe(socket)
    })
    proxy.listen(path)
    expect(await waiting).toMatchObject({ status: 0 })
    proxy.close()
    await pod.stop()
  })

  it('ends a wait at a signal', async () => {
    const interruptions = new Interruptions()
    const waiting = ctl(['-a', 'unix:///nonexistent', '--wait', '60', 'Check'], { interruptions })
    interruptions.receive('SIGINT')
    expect(await waiting).toEqual({ status: 130, stdout: '', stderr: '' })
  })

  it('asks for an address', async () => {
    const { status, stderr } = await ctl(['Check'])
    expect(status).toBe(2)
    expect(stderr).toContain(
      'agent-ctl: no address, and no machine of this user runs; start one with ./microvm run, or give',
    )
  })
})

function wordsOf(script: string, env: Readonly<Record<string, string>>): readonly string[] {
  const printing = script.replace('kata-agent-ctl', "printf '%s\\0'")
  const output = execFileSync('sh', ['-c', printing], { encoding: 'utf8', env })
  return output.split('\0').slice(0, -1)
}
