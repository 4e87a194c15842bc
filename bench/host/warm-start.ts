import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { neverAborted } from '../../src/base/abort.ts'
import { buildAgent } from '../../src/build/agent.ts'
import { projectRoot } from '../../src/build/project.ts'
import { makeTemporaryFolder, removeTemporaryFolder } from '../../src/build/temporary-folder.ts'
import { openDaemon } from '../../src/client/daemon/daemon-client.ts'
import type { Operation } from '../../src/gen/microvm/instance/v1/instance.ts'
import { ensureContainerRoot } from '../../src/image/container-root.ts'
import { ensureImage } from '../../src/image/ensure-image.ts'
import { endChild } from '../../test/support/processes.ts'
import { startDaemonProcess } from '../../test/support/wing/daemon-process.ts'
import { median, report } from '../support/figure.ts'
import { cpuMsOf } from '../support/process-figures.ts'
import { stepsOf } from '../support/steps-of.ts'

/**
 * `./microvm run --warm` against a cold run by the same daemon, container included: time, and CPU time of all processes. What a
 * clone has of guest memory of its own after one container. How long its repair takes after the first answer, and for how long its callers
 * wait in a snapshot. What a template uses while nobody takes a clone.
 */
const ROUNDS = 5
const CLONES = 2
const IDLE_MS = 5000
/** As the issue asks for. */
const GOAL = { run: 0.45, ownMib: 45, idleMs: 1, repairMs: 500, waitingMs: 3000 }

const REAPER = `import ctypes, os, sys
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
os.execv(sys.argv[1], sys.argv[1:])`

/** Processes whose parents have ended become this one's, so that their time is counted here (PR_SET_CHILD_SUBREAPER). */
if (process.argv[2] !== 'counted') {
  const words = ['-c', REAPER, process.execPath, ...process.execArgv, import.meta.filename, 'counted']
  const [status] = await once(spawn('/usr/bin/python3', words, { stdio: 'inherit' }), 'exit')
  process.exit(status ?? 1)
}

await Promise.all([buildAgent(), ensureImage({ progress: () => {} }), ensureContainerRoot(() => {})])
const folder = makeTemporaryFolder('/tmp')
const state = join(folder, 'state')
const socket = join(state, 'admin.sock')
const daemon = await startDaemonProcess(state)
const client = await openDaemon(socket, neverAborted)

type Kind = '--daemon' | '--warm'

async function run(kind: Kind, ...words: readonly string[]): Promise<string> {
  const tool = join(projectRoot, 'microvm')
  const argv = ['run', kind, '--socket', socket, '--cpus', '1', ...words]
  const child = spawn(tool, argv, { stdio: ['ignore', 'pipe', 'pipe'] })
  let [out, error] = ['', '']
  child.stdout.on('data', (chunk) => {
    out += chunk
  })
  child.stderr.on('data', (chunk) => {
    error += chunk
  })
  const [status] = await once(child, 'close')
  if (status !== 0) throw new Error(`${argv.join(' ')}: ${status}: ${error}`)
  return `${out}${error}`
}

/** Of all processes below this one, those that have ended too. */
function cpuMs(): number {
  const all = new Map(
    readdirSync('/proc').flatMap((pid) => {
      const fields = /^\d+$/.test(pid) ? statOf(pid) : undefined
      return fields === undefined ? [] : [[Number(pid), fields] as const]
    }),
  )
  const isBelow = (pid: number): boolean =>
    pid === process.pid || (pid > 1 && isBelow(all.get(pid)?.parent ?? 0))
  return [...all].reduce((sum, [pid, { own, reaped }]) => {
    if (!isBelow(pid)) return sum
    return sum + (pid === process.pid ? reaped : own + reaped)
  }, 0)
}

/** proc_pid_stat(5), in milliseconds. */
function statOf(pid: string) {
  try {
    const fields = readFileSync(`/proc/${pid}/stat`, 'utf8')
      .replace(/^.*\) /, '')
      .split(' ')
      .map(Number)
    const [, parent = 0] = fields
    const [user = 0, system = 0, childUser = 0, childSystem = 0] = fields.slice(11, 15)
    return { parent, own: (user + system) * 10, reaped: (childUser + childSystem) * 10 }
  } catch {
    // It has ended meanwhile.
    return undefined
  }
}

async function measured(
  kind: Kind,
): Promise<{ readonly ms: number; readonly cpu: number; readonly phases: string }> {
  const [from, begin] = [cpuMs(), performance.now()]
  const phases = await run(kind, '--json', 'true')
  return { ms: performance.now() - begin, cpu: cpuMs() - from, phases }
}

/** What QEMU has of the guest's memory for itself. */
function ownMib(pid: number): number {
  let sum = 0
  let isMemory = false
  for (const line of readFileSync(`/proc/${pid}/smaps`, 'utf8').split('\n')) {
    if (/^[0-9a-f]+-/.test(line)) isMemory = line.includes('/memfd:')
    const [, kib] = /^Private_Dirty:\s+(\d+) kB/.exec(line) ?? []
    if (isMemory && kib !== undefined) sum += Number(kib)
  }
  return sum / 1024
}

/** Of clones that have run a container, which runs on. */
async function clones() {
  const names = Array.from({ length: CLONES }, (_, index) => `own-${index}`)
  const runs = names.map((name) => {
    const argv = [
      'run',
      '--warm',
      '--name',
      name,
      '--socket',
      socket,
      '--cpus',
      '1',
      'sh',
      '-c',
      'echo up; cat',
    ]
    return spawn(join(projectRoot, 'microvm'), argv, { stdio: ['pipe', 'pipe', 'inherit'] })
  })
  await Promise.all(runs.map(({ stdout }) => once(stdout, 'data')))
  const [mib, made]: [number[], Operation[]] = [[], []]
  for (const key of names) {
    const { operations, qemuPid } = await client.calls.getInstance({ key })
    mib.push(ownMib(qemuPid))
    made.push(...operations.filter(({ kind }) => kind === 'clone'))
  }
  const [key = ''] = names
  await client.calls.snapshot({ key, name: 'one', memory: true })
  const { operations } = await client.calls.getInstance({ key })
  const snapshot = operations.findLast(({ kind }) => kind === 'snapshot')
  if (snapshot === undefined) throw new Error('no snapshot')
  const ended = runs.map((child) => once(child, 'close'))
  for (const { stdin } of runs) stdin.end()
  await Promise.all(ended)
  return { made, mib, snapshot }
}

function keeperPids(): readonly number[] {
  return readdirSync('/proc').flatMap((pid) => {
    try {
      const words = /^\d+$/.test(pid) ? readFileSync(`/proc/${pid}/cmdline`, 'latin1') : ''
      return words.includes(join(state, 'keepers')) ? [Number(pid)] : []
    } catch {
      return []
    }
  })
}

async function idleMs(): Promise<number> {
  const pids = keeperPids()
  if (pids.length === 0) throw new Error('no keeper')
  const used = () => pids.reduce((sum, pid) => sum + cpuMsOf(pid), 0)
  const from = used()
  await delay(IDLE_MS)
  return used() - from
}

try {
  await run('--warm', 'true')
  const times = {
    '--daemon': [] as Awaited<ReturnType<typeof measured>>[],
    '--warm': [] as Awaited<ReturnType<typeof measured>>[],
  }
  // The first ones load what the others find.
  await run('--daemon', 'true')
  for (let round = 0; round < ROUNDS; round++)
    for (const kind of ['--daemon', '--warm'] as const) times[kind].push(await measured(kind))
  const of = (kind: Kind, name: 'ms' | 'cpu') => median(times[kind].map((each) => each[name]))
  const phases = JSON.parse(times['--warm'].at(-1)?.phases ?? '{}')
  const goal = { unit: 'ms', limit: GOAL.run } as const
  const wall = { value: of('--warm', 'ms'), floor: of('--daemon', 'ms') }
  report({ figure: 'a warm run against a cold one', ...goal, ...wall, phases })
  const cpu = { value: of('--warm', 'cpu'), floor: of('--daemon', 'cpu') }
  report({ figure: 'a warm run against a cold one, CPU time', ...goal, ...cpu })
  const { made, mib, snapshot } = await clones()
  const own = { value: Math.max(...mib), floor: GOAL.ownMib, limit: 1 }
  report({ figure: 'guest memory of a clone after one container', unit: 'MiB', ...own })
  const repairs = made.map(({ durationUs, waitingUs }) => Number(durationUs - waitingUs) / 1000)
  const answers = made.map(({ waitingUs }) => Number(waitingUs) / 1000)
  report({
    figure: 'a clone from its first answer until ready',
    ...{ unit: 'ms', value: Math.max(...repairs), floor: GOAL.repairMs, limit: 1 },
    phases: { firstAnswer: Math.max(...answers) },
  })
  report({
    figure: 'callers wait in a snapshot with memory',
    ...{ unit: 'ms', value: Number(snapshot.waitingUs) / 1000, floor: GOAL.waitingMs, limit: 1 },
    phases: { stopped: Number(snapshot.stoppedUs) / 1000, ...stepsOf(snapshot) },
  })
  const idle = { value: await idleMs(), floor: GOAL.idleMs, limit: 1 }
  report({ figure: `CPU time of a template in ${IDLE_MS / 1000} s without clones`, unit: 'ms', ...idle })
} finally {
  const { templates } = await client.calls.listTemplates({})
  for (const { name } of templates) await client.calls.removeTemplate({ name })
  client.close()
  await endChild(daemon)
  removeTemporaryFolder(folder)
}
