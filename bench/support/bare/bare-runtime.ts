import { spawn } from 'node:child_process'
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import type { AgentPod } from '../../../test/support/host/agent-pod.ts'
import { hostRuntime } from '../../../test/support/host/host-runtimes.ts'
import { benchEnvironment } from '../figure.ts'

export type RuntimeKind = 'runc' | 'crun'

const OPTIONS = { runc: [], crun: ['--cgroup-manager', 'cgroupfs'] } as const

/** A folder in the agent's mount namespace, which has its own tmpfs at /run. */
const FOLDER = '/run/bare-runtime'

/** Each call returns its milliseconds. */
export interface BareRuntime {
  start(id: string, args: readonly string[]): Promise<number>
  remove(id: string): Promise<number>
  execTrue(id: string): Promise<number>
  /** Creates and starts a container, and waits for its end. */
  run(id: string, args: readonly string[]): Promise<number>
  delete(id: string): Promise<number>
  stop(): void
}

/**
 * Runs the runtime with the agent's mounts, cgroups and state file system, and with the specification of the container
 * `model`, changed only in paths and arguments.
 */
export async function startBareRuntime(
  pod: AgentPod,
  kind: RuntimeKind,
  model: string,
): Promise<BareRuntime> {
  const binary = await hostRuntime(kind)
  const program = join(import.meta.dirname, 'bare-runtime.py')
  const runner = spawn('nsenter', ['-t', String(pod.started.vminitPid), '-m', 'python3', program], {
    stdio: ['pipe', 'pipe', 'inherit'],
    env: benchEnvironment(),
  })
  const answers = createInterface(runner.stdout)[Symbol.asyncIterator]()
  const steps = async (...list: readonly (string | readonly string[])[]) => {
    runner.stdin.write(`${JSON.stringify(list)}\n`)
    const { value, done } = await answers.next()
    if (done) throw new Error(`the bare runtime failed: ${JSON.stringify(list)}`)
    return Number(value)
  }
  const runtime = (...args: readonly string[]) => [
    binary,
    ...OPTIONS[kind],
    '--root',
    `${FOLDER}/state`,
    ...args,
  ]
  const create = (id: string, args: readonly string[]) => {
    const bundle = writeBundle(pod, { id, args, model })
    return runtime('create', '--bundle', bundle, '--pid-file', `${bundle}/pid`, id)
  }
  return {
    start: (id, args) => steps(create(id, args), runtime('start', id)),
    remove: (id) => steps(runtime('kill', id, 'KILL'), `${FOLDER}/${id}/pid`, runtime('delete', id)),
    execTrue: (id) => steps(runtime('exec', id, '/bin/true')),
    run: (id, args) => steps(create(id, args), runtime('start', id), `${FOLDER}/${id}/pid`),
    delete: (id) => steps(runtime('delete', id)),
    stop: () => runner.stdin.end(),
  }
}

function writeBundle(
  pod: AgentPod,
  container: { readonly id: string; readonly args: readonly string[]; readonly model: string },
): string {
  const { id, args, model } = container
  const config = JSON.parse(
    readFileSync(pod.started.inside(`/run/kata-containers/${model}/config.json`), 'utf8'),
  )
  config.root.path = pod.root
  config.process.args = args
  config.linux.cgroupsPath = `/${id}`
  const bundle = `${FOLDER}/${id}`
  mkdirSync(pod.started.inside(bundle), { recursive: true })
  writeFileSync(join(pod.started.inside(bundle), 'config.json'), JSON.stringify(config))
  return bundle
}
