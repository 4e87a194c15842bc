import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type Pod, startPod } from '../test/host/agent-pod.ts'
import { busyboxRoot } from '../test/host/busybox-root.ts'
import { benchEnvironment, median, report } from './figure.ts'

/** ExecProcess `true` → WaitProcess on ttRPC, against `runc exec` of a container that bare runc made. */
const ROUNDS = 41

const folder = mkdtempSync(join(tmpdir(), 'bench-'))
const pod = await startPod()
try {
  await pod.run('bench', ['/bin/sleep', '1000000'])
  await startBareContainer()
  try {
    await measure(pod.agent)
  } finally {
    await runc('delete', '--force', 'bench')
  }
} finally {
  await pod.stop()
  rmSync(folder, { recursive: true, force: true })
}

async function measure(agent: Pod['agent']): Promise<void> {
  const ours: number[] = []
  const bare: number[] = []
  for (let round = 0; round < ROUNDS; round++) {
    bare.push(await elapsedMs(() => runc('exec', 'bench', '/bin/true')))
    ours.push(await elapsedMs(() => agentExec(agent, `true-${round}`)))
  }
  report({ figure: 'exec true', unit: 'ms', value: median(ours), floor: median(bare), limit: 1.5 })
}

async function startBareContainer(): Promise<void> {
  await runc('spec', '--bundle', folder)
  const path = join(folder, 'config.json')
  const config = JSON.parse(readFileSync(path, 'utf8'))
  config.root.path = busyboxRoot(folder)
  config.process.terminal = false
  config.process.args = ['/bin/sleep', '1000000']
  writeFileSync(path, JSON.stringify(config))
  await runc('run', '--detach', '--bundle', folder, 'bench')
}

async function runc(...args: readonly string[]): Promise<void> {
  const argv = ['--root', join(folder, 'state'), ...args]
  const child = spawn('/usr/sbin/runc', argv, { env: benchEnvironment(), stdio: 'ignore' })
  const [status] = await once(child, 'exit')
  if (status !== 0) throw new Error(`runc ${args[0]} ended with ${status}`)
}

async function agentExec(agent: Pod['agent'], execId: string): Promise<void> {
  const process = { Args: ['/bin/true'], Cwd: '/', User: {}, Env: ['PATH=/bin'] }
  await agent.execProcess({ containerId: 'bench', execId, process })
  const { status } = await agent.waitProcess({ containerId: 'bench', execId })
  if (status !== 0) throw new Error(`true ended with ${status}`)
}

async function elapsedMs(action: () => Promise<void>): Promise<number> {
  const begin = performance.now()
  await action()
  return performance.now() - begin
}
