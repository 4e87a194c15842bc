import { spawn } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { cpus, loadavg, release } from 'node:os'
import { basename, join } from 'node:path'
import { createInterface } from 'node:readline'
import { parseArgs } from 'node:util'
import { comparison, type Run, type RunFigure, readRun } from './compare.ts'
import { keep, worseThanKept } from './kept.ts'
import { commitHere } from './support/commit.ts'
import { benchEnvironment } from './support/figure.ts'

/**
 * `npm run bench [-- NAME…]`: runs the named benchmarks; `--keep` stores the results as the reference of later runs.
 * `npm run bench -- compare BEFORE AFTER`: compares two runs that `--json` has written.
 * `npm run bench -- trace CALL [RUNTIME [FILE]]`: shows what the agent does in each step of a call.
 * `npm run bench -- growth [NAME…]`: shows how costs grow; `--keep` stores the tables.
 */
const PATHS = [
  ...['agent/agent-start', 'agent/rpc', 'agent/rpc-under-load', 'agent/policy'],
  ...[
    'agent/network',
    'agent/metadata',
    'agent/agent-death',
    'agent/memory',
    'agent/supervisor-memory',
    'agent/ctl-start',
    'agent/minimal-agent',
  ],
  ...['containers/exec', 'containers/exec-crowd', 'containers/container-life', 'containers/first-container'],
  'containers/shared-storage',
  ...['stdio/port-stdout', 'stdio/port-relays', 'stdio/read-stdout', 'stdio/copy-file', 'stdio/console-ring'],
  'containers/exec-leak',
  'containers/metrics',
  ...['guest/hot-plug', 'guest/idle', 'guest/vm-boot', 'guest/guest-memory', 'guest/mem-agent'],
  'guest/resume',
  'guest/device-back',
  'guest/freeze',
  'guest/counts',
  'host/expand',
  'host/document-boot',
  'host/registry',
  'host/instance-start',
  'host/host-service',
  'host/initial-image',
  ...['host/snapshots', 'host/saved-machine'],
  ...['host/bulk-move', 'host/move'],
  ...['host/controller', 'host/idle-lease'],
  'host/warm-start',
  'host/console-calls',
  'host/console-guest',
]
const SCRIPTS = new Map(PATHS.map((path) => [basename(path), join(import.meta.dirname, `${path}.ts`)]))

/** The benchmarks that most changes of the agent may affect; at most five minutes. */
const QUICK = [
  ...['agent-start', 'agent-death', 'rpc', 'supervisor-memory'],
  ...['exec', 'container-life', 'read-stdout'],
]

const OPTIONS = {
  quick: { type: 'boolean', default: false },
  rounds: { type: 'string', default: '1' },
  json: { type: 'string' },
  keep: { type: 'boolean', default: false },
} as const

await main().catch((error: unknown) => {
  process.stderr.write(`bench: ${error instanceof Error ? error.message : String(error)}\n`)
  process.exitCode = 2
})

async function main(): Promise<void> {
  const { values, positionals } = parseArgs({ options: OPTIONS, allowPositionals: true })
  const [command, before = '', after = ''] = positionals
  if (command === 'compare') {
    if (positionals.length !== 3) throw new Error('compare: want two files that --json has written')
    process.stdout.write(comparison(readRun(before), readRun(after)))
    return
  }
  if (command === 'trace') {
    const isStart = positionals[1] === 'start'
    runTool(isStart ? 'trace/trace-start.ts' : 'trace/trace.ts', positionals.slice(1))
    return
  }
  if (command === 'growth') {
    runTool('growth/growth.ts', [...positionals.slice(1), ...(values.keep ? ['--keep'] : [])])
    return
  }
  const unknown = positionals.find((name) => !SCRIPTS.has(name))
  if (unknown !== undefined) {
    throw new Error(`${unknown}: not found, want one of ${[...SCRIPTS.keys()].join(', ')}`)
  }
  const rounds = Number(values.rounds)
  if (!(Number.isInteger(rounds) && rounds > 0)) throw new Error(`--rounds ${values.rounds}: want a number`)
  const all = values.quick ? QUICK : [...SCRIPTS.keys()]
  const result = await measure(positionals.length > 0 ? positionals : all, rounds)
  if (values.json !== undefined) writeFileSync(values.json, `${JSON.stringify(result, undefined, 2)}\n`)
  process.stdout.write(worseThanKept(result))
  if (values.keep) keep(result)
}

function runTool(path: string, words: readonly string[]): void {
  const child = spawn(process.execPath, [join(import.meta.dirname, path), ...words], { stdio: 'inherit' })
  child.once('close', (status) => {
    process.exitCode = status ?? 1
  })
}

/** Runs each benchmark once a round, so that a busy minute does not affect only one of them. */
async function measure(names: readonly string[], rounds: number): Promise<Run> {
  const figures = new Map<string, RunFigure>()
  const [loadBefore = 0] = loadavg()
  for (let round = 0; round < rounds; round += 1) {
    for (const name of names) {
      const isComplete = await runScript(SCRIPTS.get(name) ?? '', (line) => addTo(figures, line))
      if (!isComplete) process.exitCode = 1
    }
  }
  const [loadAfter = 0] = loadavg()
  const machine = { kernel: release(), cpus: cpus().length, load: [loadBefore, loadAfter] }
  return { commit: await commitHere(), ...machine, rounds, figures: Object.fromEntries(figures) }
}

async function runScript(script: string, onFigure: (line: string) => void): Promise<boolean> {
  const child = spawn(process.execPath, [script], {
    stdio: ['inherit', 'pipe', 'inherit'],
    env: benchEnvironment(),
  })
  const ended = new Promise<boolean>((resolve) => child.once('close', (status) => resolve(status === 0)))
  for await (const line of createInterface(child.stdout)) {
    process.stdout.write(`${line}\n`)
    if (line.startsWith('{')) onFigure(line)
  }
  return await ended
}

function addTo(figures: Map<string, RunFigure>, line: string): void {
  const { figure, value, floor, unit, limit, spread } = JSON.parse(line)
  if (typeof figure !== 'string' || typeof value !== 'number' || typeof floor !== 'number') return
  const before = figures.get(figure) ?? { unit, limit, spread, values: [], floors: [] }
  figures.set(figure, { ...before, values: [...before.values, value], floors: [...before.floors, floor] })
}
