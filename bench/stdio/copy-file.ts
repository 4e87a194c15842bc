import type { AgentPod } from '../../test/support/host/agent-pod.ts'
import { benchPod } from '../support/bench-pod.ts'
import { median, report } from '../support/figure.ts'

/** 128 MiB copied to a file by CopyFile, against the same bytes to a process by WriteStdin, in the chunks of both shims. */
const ROUNDS = 9
const CHUNK = 1 << 20
const MIB = 128
const READER = ['sh', '-c', 'exec cat > /dev/null']
const FILE = {
  path: '/run/kata-containers/shared/containers/copied',
  fileSize: BigInt(MIB * CHUNK),
  fileMode: 0o100_644,
  dirMode: 0o750,
}

const data = Buffer.alloc(CHUNK, 'data')
const pod = await benchPod()
try {
  await pod.run('bench', ['/bin/sleep', '1000000'])
  await measure(pod)
} finally {
  await pod.stop()
}

async function measure(pod: AgentPod): Promise<void> {
  const copies: number[] = []
  const writes: number[] = []
  for (let round = 0; round < ROUNDS; round++) {
    copies.push(await elapsedMs((chunk) => copy(pod, chunk)))
    const reader = await pod.add('bench', `reader-${round}`, READER)
    // The first write ends when the reader has begun.
    await reader.write(data)
    writes.push(await elapsedMs(() => reader.write(data)))
    await reader.closeStdin()
    await reader.wait()
  }
  const figure = { value: median(copies), floor: median(writes), limit: 1 / 0.9 }
  report({ figure: `CopyFile, ${MIB} MiB, 1 MiB a call`, unit: 'ms', ...figure })
}

async function elapsedMs(send: (chunk: number) => Promise<void>): Promise<number> {
  const begin = performance.now()
  for (let chunk = 0; chunk < MIB; chunk++) await send(chunk)
  return performance.now() - begin
}

async function copy({ agent }: AgentPod, chunk: number): Promise<void> {
  await agent.copyFile({ ...FILE, offset: BigInt(chunk * CHUNK), data })
}
