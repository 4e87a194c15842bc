import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { makeTemporaryFolder, removeTemporaryFolder } from '../../src/build/temporary-folder.ts'
import type { AgentPod } from '../../test/support/host/agent-pod.ts'
import { listenForOne, makeHostPorts } from '../../test/support/host/host-ports.ts'
import { benchPod } from '../support/bench-pod.ts'
import { benchEnvironment, median, report } from '../support/figure.ts'
import { cpuMsOf } from '../support/process-figures.ts'

/**
 * The relays that pass bytes through a pipe: connection to process, and terminal to connection. The floor is a
 * read(2)/write(2) loop, which loses its buffer when it is killed. The terminal is also measured with its last bytes kept.
 */
const ROUNDS = 15
const CHUNK = Buffer.alloc(2 ** 18)
const INPUT_CHUNKS = 2048
const TERMINAL_BLOCKS = 512
const SINK = ['dd', 'of=/dev/null', 'bs=64k']
const SOURCE = ['dd', 'if=/dev/zero', 'bs=64k', `count=${TERMINAL_BLOCKS}`]

/** `move` waits as the agent's thread does: only in poll(2). */
const BEGIN = `
import fcntl, os, pty, select, socket, subprocess, sys
connection = socket.socket(socket.AF_UNIX)
connection.connect(sys.argv[1])
room = memoryview(bytearray(1 << 16))
def wait(fd, events):
    poll = select.poll()
    poll.register(fd, events)
    poll.poll()
def move(source, target):
    os.set_blocking(source, False)
    os.set_blocking(target, False)
    while True:
        try:
            unwritten = room[:os.readv(source, [room])]
        except BlockingIOError:
            wait(source, select.POLLIN)
            continue
        except OSError:
            return
        if not unwritten:
            return
        while unwritten:
            try:
                unwritten = unwritten[os.write(target, unwritten):]
            except BlockingIOError:
                wait(target, select.POLLOUT)
`
const FROM_SOCKET = `${BEGIN}
process = subprocess.Popen(sys.argv[2:], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
fcntl.fcntl(process.stdin, fcntl.F_SETPIPE_SZ, 1 << 17)
move(connection.fileno(), process.stdin.fileno())
process.stdin.close()
process.wait()
`
const FROM_TERMINAL = `${BEGIN}
master, slave = pty.openpty()
process = subprocess.Popen(sys.argv[2:], stdout=slave, stderr=slave)
os.close(slave)
move(master, connection.fileno())
process.wait()
`

interface Sample {
  readonly ms: number
  readonly cpuMs: number
}

const folder = makeTemporaryFolder(tmpdir())
const ports = makeHostPorts()
const keepingPorts = makeHostPorts({ output_replay_bytes: '65536' })
const pod = await benchPod({ settings: ports.settings })
const keeping = await benchPod({ settings: keepingPorts.settings })
const samples = {
  input: [] as Sample[],
  inputLoop: [] as number[],
  output: [] as Sample[],
  kept: [] as Sample[],
  outputLoop: [] as number[],
}
try {
  for (const each of [pod, keeping]) await each.run('bench', ['/bin/sleep', '1000000'])
  for (let round = 0; round <= ROUNDS; round++) {
    const one = {
      input: await relayed(pod, ports.folder, 1000 + round, SINK, true),
      inputLoop: await looped(join(folder, `input-${round}`), FROM_SOCKET, SINK, true),
      output: await relayed(pod, ports.folder, 2000 + round, SOURCE, false),
      kept: await relayed(keeping, keepingPorts.folder, 2000 + round, SOURCE, false),
      outputLoop: await looped(join(folder, `output-${round}`), FROM_TERMINAL, SOURCE, false),
    }
    if (round === 0) continue
    samples.input.push(one.input)
    samples.inputLoop.push(one.inputLoop)
    samples.output.push(one.output)
    samples.kept.push(one.kept)
    samples.outputLoop.push(one.outputLoop)
  }
} finally {
  await pod.stop()
  await keeping.stop()
  ports.remove()
  keepingPorts.remove()
  removeTemporaryFolder(folder)
}
figure('port stdin, 512 MiB from a connection', samples.input, samples.inputLoop, 1.15)
figure('port stdout, 32 MiB from a terminal', samples.output, samples.outputLoop, 1.15)
const without = samples.output.map(({ ms }) => ms)
figure('port stdout with its last output kept, 32 MiB from a terminal', samples.kept, without, 1.1)

function figure(name: string, relay: readonly Sample[], floor: readonly number[], limit: number): void {
  const value = median(relay.map(({ ms }) => ms))
  const phases = { agentCpu: median(relay.map(({ cpuMs }) => cpuMs)) }
  report({ figure: name, unit: 'ms', value, floor: median(floor), limit, phases })
}

async function relayed(
  { started, add }: AgentPod,
  hosts: string,
  port: number,
  argv: readonly string[],
  isInput: boolean,
): Promise<Sample> {
  const host = await listenForOne(join(hosts, `port_${port}`))
  const options = isInput ? { ports: { stdinPort: port } } : { terminal: true, ports: { stdoutPort: port } }
  const before = cpuMsOf(started.agentPid())
  const process = await add('bench', `process-${port}`, argv, options)
  const ms = await elapsed(host, isInput, async () => void (await process.wait()))
  return { ms, cpuMs: cpuMsOf(started.agentPid()) - before }
}

async function looped(
  path: string,
  program: string,
  argv: readonly string[],
  isInput: boolean,
): Promise<number> {
  const host = await listenForOne(path)
  const args = ['-c', program, path, join(pod.root, 'bin/busybox'), ...argv]
  const loop = spawn('python3', args, { stdio: ['ignore', 'inherit', 'inherit'], env: benchEnvironment() })
  const ended = once(loop, 'exit')
  return elapsed(host, isInput, async () => void (await ended))
}

type Host = Awaited<ReturnType<typeof listenForOne>>

async function elapsed(host: Host, isInput: boolean, ended: () => Promise<void>): Promise<number> {
  const connection = await host.connection
  if (isInput) {
    const begin = performance.now()
    connection.resume()
    for (let count = 0; count < INPUT_CHUNKS; count++) {
      await new Promise((resolve) => connection.write(CHUNK, resolve))
    }
    connection.end()
    await ended()
    return performance.now() - begin
  }
  let begin = 0
  let bytes = 0
  for await (const chunk of connection) {
    if (bytes === 0) begin = performance.now()
    bytes += chunk.length
  }
  // More bytes may follow: dd's own report.
  if (bytes < TERMINAL_BLOCKS * 65_536) throw new Error(`${bytes} bytes came from the terminal`)
  const elapsedMs = performance.now() - begin
  await ended()
  return elapsedMs
}
