import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { createServer, type Server, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { makeTemporaryFolder, removeTemporaryFolder } from '../../src/build/temporary-folder.ts'
import type { RemoteProcess } from '../../test/support/containers/pod.ts'
import type { AgentPod } from '../../test/support/host/agent-pod.ts'
import { bareAnswersMs } from '../support/bare/bare-answers.ts'
import { benchPod } from '../support/bench-pod.ts'
import { benchEnvironment, median, report } from '../support/figure.ts'

/** 256 MiB of a process's output by ReadStdout, against a Node program that copies them from a pipe to a unix socket. */
const ROUNDS = 9
/** The lengths of one read: the buffer of Go's io.Copy, and the longest answer. */
const LENGTHS = { '32 KiB': 32 << 10, '1 MiB': 1 << 20 }
const MIB = 256
const WRITER = ['dd', 'if=/dev/zero', 'bs=64k', `count=${MIB * 16}`]

const COPY = `process.stdin.pipe(require('node:net').connect(process.argv[1]))`

const folder = makeTemporaryFolder(tmpdir())
const path = join(folder, 'copy.sock')
const server = createServer().listen(path)
const pod = await benchPod()
try {
  await pod.run('bench', ['/bin/sleep', '1000000'])
  await measure(pod, server)
} finally {
  server.close()
  await pod.stop()
  removeTemporaryFolder(folder)
}

async function measure(pod: AgentPod, server: Server): Promise<void> {
  const floors: number[] = []
  const values = Object.entries(LENGTHS).map(([name, length]) => ({ name, length, ms: [] as number[] }))
  for (let round = 0; round < ROUNDS; round++) {
    floors.push(await copiedMs(pod, server))
    for (const { name, length, ms } of values) {
      const added = await pod.add('bench', `writer-${name}-${round}`, WRITER)
      ms.push(await readMs(added, length))
      await added.wait()
    }
  }
  for (const { name, length, ms } of values) {
    const figure = { value: median(ms), floor: median(floors), limit: 1 / 0.3 }
    const answers = await bareAnswersMs(join(folder, `${length}.sock`), (MIB << 20) / length, length)
    const phases = { 'as many bare answers': answers }
    report({ figure: `ReadStdout, ${MIB} MiB, ${name} a call`, unit: 'ms', ...figure, phases })
  }
}

async function readMs(added: RemoteProcess, length: number): Promise<number> {
  const next = () => added.read('stdout', length)
  let total = (await next()).length
  const begin = performance.now()
  for (let chunk = await next(); chunk.length > 0; chunk = await next()) total += chunk.length
  checkTotal(total)
  return performance.now() - begin
}

async function copiedMs({ root }: AgentPod, server: Server): Promise<number> {
  const script = '"$0" "$1" "$2" "$3" "$4" 2>/dev/null | { shift 4; exec "$@"; }'
  const argv = ['-c', script, join(root, 'bin/busybox'), ...WRITER, process.execPath, '-e', COPY, path]
  const child = spawn('sh', argv, { stdio: ['ignore', 'ignore', 'inherit'], env: benchEnvironment() })
  const ended = once(child, 'exit')
  const [socket]: Socket[] = await once(server, 'connection')
  if (socket === undefined) throw new Error('nobody connected')
  let total = 0
  let begin = 0
  socket.on('data', (chunk: Buffer) => {
    if (total === 0) begin = performance.now()
    total += chunk.length
  })
  await once(socket, 'end')
  const elapsed = performance.now() - begin
  await ended
  checkTotal(total)
  return elapsed
}

function checkTotal(bytes: number): void {
  if (bytes !== MIB << 20) throw new Error(`${bytes} bytes came instead of ${MIB} MiB`)
}
