import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import type { AgentPod } from '../../test/support/host/agent-pod.ts'
import { makeHostPorts } from '../../test/support/host/host-ports.ts'
import { benchPod } from '../support/bench-pod.ts'
import { benchEnvironment, median, report } from '../support/figure.ts'
import { cpuMsOf } from '../support/process-figures.ts'

/**
 * 1 GiB of a process's output through a port, against a bare splice loop (time) and a relay in JavaScript (CPU); also
 * with its last bytes kept.
 */
const ROUNDS = 7
const MIB = 1024
const WRITER = ['dd', 'if=/dev/zero', 'bs=64k', `count=${MIB * 16}`]

const READER = `
import socket, sys, time
server = socket.socket(socket.AF_UNIX)
server.bind(sys.argv[1])
server.listen()
print('listening', flush=True)
connection, _ = server.accept()
space = bytearray(1 << 20)
total = connection.recv_into(space)
begin = time.monotonic()
while count := connection.recv_into(space):
    total += count
assert total == ${MIB} << 20, total
print((time.monotonic() - begin) * 1000)
`

/** Drops the opening, and tells its total after every 64 KiB and at the end. */
const RESUMING_READER = `
import socket, struct, sys, time
server = socket.socket(socket.AF_UNIX)
server.bind(sys.argv[1])
server.listen()
print('listening', flush=True)
connection, _ = server.accept()
connection.recv(16, socket.MSG_WAITALL)
space = bytearray(1 << 20)
begin = time.monotonic()
total = told = 0
while count := connection.recv_into(space):
    total += count
    if total - told >= 65536 or total == ${MIB} << 20:
        connection.send(struct.pack('<Q', total))
        told = total
assert total == ${MIB} << 20, total
print((time.monotonic() - begin) * 1000)
`

const SPLICE_LOOP = `
import os, socket, sys
target = socket.socket(socket.AF_UNIX)
target.connect(sys.argv[1])
while os.splice(0, target.fileno(), 1 << 20):
    pass
`

const JAVASCRIPT_RELAY = `
const target = require('node:net').connect(process.argv[1], () => {
  const before = process.cpuUsage()
  process.stdin.pipe(target)
  target.on('close', () => {
    const { user, system } = process.cpuUsage(before)
    console.log((user + system) / 1000)
  })
})
`

const ports = makeHostPorts()
const keepingPorts = makeHostPorts({ output_replay_bytes: '65536' })
const resumingPorts = makeHostPorts({ stream_resume: 'true' })
const pod = await benchPod({ settings: ports.settings })
const resuming = await benchPod({ settings: resumingPorts.settings })
const keeping = await benchPod({ settings: keepingPorts.settings })
try {
  for (const each of [pod, keeping, resuming]) await each.run('bench', ['/bin/sleep', '1000000'])
  await measure(ports.folder)
} finally {
  await pod.stop()
  await keeping.stop()
  await resuming.stop()
  resumingPorts.remove()
  ports.remove()
  keepingPorts.remove()
}

async function measure(folder: string): Promise<void> {
  const agent: Sample[] = []
  const kept: Sample[] = []
  const resumed: Sample[] = []
  const splice: Sample[] = []
  const javascript: Sample[] = []
  for (let round = 1; round <= ROUNDS; round++) {
    const at = (kind: number) => 1000 * kind + round
    agent.push(await readWhile(`${folder}/port_${at(1)}`, () => throughPort(pod, at(1))))
    kept.push(await readWhile(`${keepingPorts.folder}/port_${at(1)}`, () => throughPort(keeping, at(1))))
    const path = `${resumingPorts.folder}/port_${at(1)}`
    resumed.push(await readWhile(path, () => throughPort(resuming, at(1)), RESUMING_READER))
    splice.push(
      await readWhile(`${folder}/${at(2)}`, (path) =>
        relayed(pod.root, ['python3', '-c', SPLICE_LOOP, path]),
      ),
    )
    javascript.push(
      await readWhile(`${folder}/${at(3)}`, (path) =>
        relayed(pod.root, [process.execPath, '-e', JAVASCRIPT_RELAY, path]),
      ),
    )
  }
  const medianOf = (samples: readonly Sample[], key: keyof Sample) => median(samples.map((one) => one[key]))
  report({
    figure: 'port stdout, 1 GiB',
    unit: 'ms',
    value: medianOf(agent, 'elapsedMs'),
    floor: medianOf(splice, 'elapsedMs'),
    limit: 1.25,
  })
  report({
    figure: 'port stdout with its last output kept, 1 GiB',
    unit: 'ms',
    value: medianOf(kept, 'elapsedMs'),
    floor: medianOf(agent, 'elapsedMs'),
    limit: 1.1,
    phases: { agentCpu: medianOf(kept, 'cpuMs'), agentCpuWithout: medianOf(agent, 'cpuMs') },
  })
  report({
    figure: 'port stdout that resumes, 1 GiB',
    unit: 'ms',
    value: medianOf(resumed, 'elapsedMs'),
    floor: medianOf(agent, 'elapsedMs'),
    limit: 1.2,
    phases: { agentCpu: medianOf(resumed, 'cpuMs'), agentCpuWithout: medianOf(agent, 'cpuMs') },
  })
  report({
    figure: 'port stdout, CPU of 1 GiB',
    unit: 'ms',
    value: medianOf(agent, 'cpuMs'),
    floor: medianOf(javascript, 'cpuMs'),
    limit: 0.25,
  })
}

interface Sample {
  readonly elapsedMs: number
  readonly cpuMs: number
}

/** `write` sends to a reader at `path` and returns the CPU time of the relay. */
async function readWhile(
  path: string,
  write: (path: string) => Promise<number>,
  program = READER,
): Promise<Sample> {
  const reader = run(['python3', '-c', program, path])
  const output = text(reader.stdout)
  await once(reader.stdout, 'data')
  const cpuMs = await write(path)
  const elapsedMs = Number((await output).split('\n')[1])
  return { elapsedMs, cpuMs }
}

async function throughPort({ started, add }: AgentPod, port: number): Promise<number> {
  const before = cpuMsOf(started.agentPid())
  const added = await add('bench', `port-${port}`, WRITER, { ports: { stdoutPort: port } })
  const status = await added.wait()
  if (status !== 0) throw new Error(`dd ended with ${status}`)
  return cpuMsOf(started.agentPid()) - before
}

/** Writes the same bytes into a pipe that a relay program reads. Returns the number that the program prints, if any. */
async function relayed(root: string, relay: readonly string[]): Promise<number> {
  const script = '"$0" "$1" "$2" "$3" "$4" 2>/dev/null | { shift 4; exec "$@"; }'
  const child = run(['sh', '-c', script, join(root, 'bin/busybox'), ...WRITER, ...relay])
  return Number(await text(child.stdout))
}

function run(
  argv: readonly [string, ...string[]],
): ChildProcess & { readonly stdout: NonNullable<ChildProcess['stdout']> } {
  const [program, ...args] = argv
  return spawn(program, args, { stdio: ['ignore', 'pipe', 'inherit'], env: benchEnvironment() })
}
