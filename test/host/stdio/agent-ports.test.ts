import { spawn } from 'node:child_process'
import { createHash, randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { SIGKILL } from '../../../src/base/signals.ts'
import { type AgentPod, leftoversOf, NOTHING_LEFT, startPod } from '../../support/host/agent-pod.ts'
import { type HostPorts, makeHostPorts } from '../../support/host/host-ports.ts'

const SIGPIPE = 13
const MIB = 1024 * 1024

describe('standard streams over ports of the host', () => {
  let host: HostPorts
  let pod: AgentPod
  beforeAll(async () => {
    host = makeHostPorts()
    pod = await startPod({ settings: host.settings })
    await pod.run('host', ['sleep', '1000'])
  })
  afterAll(async () => {
    await pod?.stop()
    host?.remove()
  })

  it('of a container carry exactly its output, and end with it', async () => {
    const [stdout, stderr] = [await host.listen(2), await host.listen(3)]
    const init = await pod.run('exact', ['sh', '-c', 'printf out; printf error >&2; exit 5'], {
      ports: { stdoutPort: 2, stderrPort: 3 },
    })
    expect((await Promise.all([stdout.all(), stderr.all()])).map(String)).toEqual(['out', 'error'])
    await expect(init.read()).rejects.toMatchObject({ code: 'INTERNAL', message: 'cannot get stream reader' })
    expect(await init.wait()).toBe(5)
    await pod.remove('exact')
  })

  it.each([0, 1, 65_535, 65_536, 65_537, 64 * MIB])('pass %i bytes both ways and the end', async (count) => {
    const [stdin, stdout] = [await host.listen(1), await host.listen(2)]
    const ports = { stdinPort: 1, stdoutPort: 2 }
    const added = await pod.add('host', `cat-${count}`, ['cat'], { ports })
    const bytes = randomBytes(count)
    const output = stdout.all()
    ;(await stdin.connection).end(bytes)
    expect(digest(await output)).toBe(digest(bytes))
    expect(await added.wait()).toBe(0)
  })

  it('are pipes for the process', async () => {
    const stdout = await host.listen(2)
    const script = 'echo x > /dev/stdout; readlink /proc/self/fd/1 | cut -c 1-5'
    const added = await pod.add('host', 'pipes', ['sh', '-c', script], { ports: { stdoutPort: 2 } })
    expect((await stdout.all()).toString()).toBe('x\npipe:\n')
    await added.wait()
  })

  it('end by CloseStdin', async () => {
    const [stdin, stdout] = [await host.listen(1), await host.listen(2)]
    const ports = { stdinPort: 1, stdoutPort: 2 }
    const added = await pod.add('host', 'close', ['cat'], { ports })
    const connection = await stdin.connection
    const closed = stdin.all()
    connection.write('before')
    const output = await stdout.connection
    const [first] = await once(output.resume(), 'data')
    expect(String(first)).toBe('before')
    await added.closeStdin()
    expect(await closed).toHaveLength(0)
    expect(await added.wait()).toBe(0)
  })

  it('whose reader goes away give the process SIGPIPE', async () => {
    const stdout = await host.listen(2)
    const added = await pod.add('host', 'yes', ['yes'], { ports: { stdoutPort: 2 } })
    ;(await stdout.connection).destroy()
    expect(await added.wait()).toBe(128 + SIGPIPE)
  })

  it('with a slow reader block no other stream, and lose nothing', async () => {
    const stdout = await host.listen(2)
    const added = await pod.add('host', 'slow', ['head', '-c', '40000', '/dev/zero'], {
      ports: { stdoutPort: 2 },
    })
    expect(await added.wait()).toBe(0)
    const full = await host.listen(4)
    const stuck = await pod.add('host', 'stuck', ['yes'], { ports: { stdoutPort: 4 } })
    // Its first bytes have come; nothing is read of the others.
    await once(await full.connection, 'readable')
    const waiting = stuck.wait()
    const beside = await host.listen(6)
    const other = await pod.add('host', 'beside', ['head', '-c', String(MIB), '/dev/zero'], {
      ports: { stdoutPort: 6 },
    })
    expect(await beside.all()).toHaveLength(MIB)
    expect(await other.wait()).toBe(0)
    await stuck.signal(SIGKILL)
    // At least a pipe full: two pages where the user has 64 MiB of pipes already (`fs.pipe-user-pages-soft`).
    expect((await full.all()).length).toBeGreaterThan(8192)
    expect(await waiting).toBe(128 + SIGKILL)
    expect(await stdout.all()).toHaveLength(40_000)
  })

  it('end with their process although one that outlives it holds them open', async () => {
    const stdout = await host.listen(2)
    const added = await pod.add('host', 'holder', ['sh', '-c', 'echo all; sleep 1000 &'], {
      ports: { stdoutPort: 2 },
    })
    expect((await stdout.all()).toString()).toBe('all\n')
    expect(await added.wait()).toBe(0)
  })

  it('of a terminal go both ways on one connection, which only its process ends', async () => {
    const both = await host.listen(1)
    const init = await pod.create('tty', ['sh', '-c', 'stty size; cat; stty size; echo last >&2'], {
      terminal: true,
      ports: { stdinPort: 1, stdoutPort: 1 },
    })
    const connection = await both.connection
    const output = both.all()
    await pod.agent.startContainer({ containerId: 'tty' })
    await init.resize(50, 132)
    // Half-closing is not necessary, and is harmless.
    connection.end('typed\r\x04')
    const text = (await output).toString()
    expect(text).toContain('typed\r\n')
    expect(text).toContain('50 132\r\nlast\r\n')
    expect(await init.wait()).toBe(0)
    await pod.remove('tty')
  })

  it('of a terminal hang it up when the reader goes away', async () => {
    const both = await host.listen(1)
    const added = await pod.add('host', 'hang-up', ['sh', '-c', 'sleep 1000'], {
      terminal: true,
      ports: { stdinPort: 1, stdoutPort: 1 },
    })
    ;(await both.connection).destroy()
    expect(await added.wait()).toBe(128 + 1)
  })

  it('where no process listens fail at once with the port’s number, and leave nothing', async () => {
    const before = pod.started.openFiles()
    const stdout = await host.listen(2)
    const ports = { stdoutPort: 2, stderrPort: 3 }
    const refusal = {
      code: 'INTERNAL',
      message: expect.stringMatching(/^stderr: port 3 of the host: no listener: connect .*: ENOENT$/),
    }
    await expect(pod.create('refused', ['true'], { ports })).rejects.toMatchObject(refusal)
    expect(await stdout.all()).toHaveLength(0)
    expect({ ...leftoversOf(pod.started, 'refused'), processes: [] }).toEqual(NOTHING_LEFT)
    const other = await host.listen(2)
    await expect(pod.add('host', 'refused', ['true'], { ports })).rejects.toMatchObject(refusal)
    expect(await other.all()).toHaveLength(0)
    expect(pod.started.openFiles()).toEqual(before)
    const again = await pod.add('host', 'refused', ['true'])
    expect(await again.wait()).toBe(0)
  })

  it('are closed when the runtime refuses the process', async () => {
    const stdout = await host.listen(2)
    const ports = { stdoutPort: 2 }
    await expect(pod.add('host', 'missing', ['/no/such'], { ports })).rejects.toThrow('/no/such')
    expect(await stdout.all()).toHaveLength(0)
  })

  it('leave nothing open', async () => {
    const before = pod.started.openFiles()
    for (const terminal of [false, true]) {
      const ends = [await host.listen(1), await host.listen(2), await host.listen(3)]
      const ports = { stdinPort: 1, stdoutPort: 2, stderrPort: 3 }
      const init = await pod.run('closed', ['echo', 'x'], { terminal, ports })
      const texts = (await Promise.all(ends.map((end) => end.all()))).map(String)
      expect(texts).toEqual(['', terminal ? 'x\r\n' : 'x\n', ''])
      await init.wait()
      await pod.remove('closed')
    }
    expect(pod.started.openFiles()).toEqual(before)
  })
})

describe('an agent that the host connects to for its streams', () => {
  let host: HostPorts
  let pod: AgentPod
  beforeAll(async () => {
    host = makeHostPorts({ passfd_listener_port: '1027' })
    pod = await startPod({ settings: host.settings })
  })
  afterAll(async () => {
    await pod?.stop()
    host?.remove()
  })

  it('uses the connection that came from the port', async () => {
    const client = connectFrom(host.folder, 77)
    const exited = once(client, 'exit')
    const lines = createInterface(client.stdout)[Symbol.asyncIterator]()
    expect((await lines.next()).value).toBe('connected')
    const init = await pod.run('claimed', ['sh', '-c', 'echo out'], { ports: { stdoutPort: 77 } })
    expect((await lines.next()).value).toBe("b'out\\n'")
    expect(await init.wait()).toBe(0)
    expect(await exited).toEqual([0, null])
    await pod.remove('claimed')
  })

  it('refuses a port without a connection from it', async () => {
    await expect(pod.create('unclaimed', ['true'], { ports: { stdinPort: 78 } })).rejects.toMatchObject({
      code: 'INTERNAL',
      message: 'stdin: the host has made no connection from its port 78',
    })
    expect({ ...leftoversOf(pod.started, 'unclaimed'), processes: [] }).toEqual(NOTHING_LEFT)
  })
})

/** Connects to the agent from port `port`, reports that, and prints all received data. */
function connectFrom(folder: string, port: number) {
  const program = `
import socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
s.bind(sys.argv[1])
s.connect(sys.argv[2])
print('connected', flush=True)
print(b''.join(iter(lambda: s.recv(65536), b'')), flush=True)
`
  const paths = [join(folder, `port_${port}`), join(folder, 'listener_1027')]
  return spawn('python3', ['-c', program, ...paths], { stdio: ['ignore', 'pipe', 'inherit'] })
}

function digest(bytes: Buffer): string {
  return createHash('sha256').update(bytes).digest('hex')
}
