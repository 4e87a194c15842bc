import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { readdirSync, readFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Readable, Writable } from 'node:stream'
import { text } from 'node:stream/consumers'
import { projectRoot } from '../../../src/build/project.ts'

const MICROVM = join(projectRoot, 'microvm')

export interface MicrovmProcess {
  readonly pid: number
  /** The process that runs the tool on the pinned Node; valid once the container writes output. */
  toolPid(): number
  readonly stdin: Writable
  readonly stdout: Readable
  kill(signal: NodeJS.Signals): void
  /** Resolves at its end; the status is 128 + N when signal N ended it. `stdout` is the output not yet read. */
  readonly result: Promise<RunResult>
}

export interface RunResult {
  readonly status: number | null
  readonly signal: NodeJS.Signals | null
  readonly stdout: string
  readonly stderr: string
}

export const endedRuns: { readonly words: readonly string[]; readonly result: RunResult }[] = []

/** Starts `./microvm run`, or another tool in its place; `env` is added to the environment. */
export function startMicrovm(
  words: readonly string[],
  env: NodeJS.ProcessEnv = {},
  tool = MICROVM,
): MicrovmProcess {
  const child = spawn(tool, ['run', ...words], { env: { ...process.env, ...env } })
  const { pid } = child
  if (pid === undefined) throw new Error('microvm did not start')
  return {
    pid,
    toolPid: () => Number(readFileSync(`/proc/${pid}/task/${pid}/children`, 'latin1').trim()),
    stdin: child.stdin,
    stdout: child.stdout,
    kill: (signal) => child.kill(signal),
    result: resultOf(child, child.stdout, child.stderr).then((result) => {
      endedRuns.push({ words, result })
      return result
    }),
  }
}

export async function runMicrovm(words: readonly string[], input = ''): Promise<RunResult> {
  const running = startMicrovm(words)
  running.stdin.on('error', () => {}).end(input)
  return await running.result
}

export function foldersOf(pid: number): readonly string[] {
  return readdirSync(tmpdir()).filter((name) => name.startsWith(`microvm-${pid}-`))
}

export function programsOf(pid: number): readonly number[] {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
    .filter((candidate) => candidate !== pid && argumentsOf(candidate).includes(`/microvm-${pid}-`))
}

async function resultOf(child: ChildProcess, stdout: Readable, stderr: Readable): Promise<RunResult> {
  const ended = once(child, 'exit')
  const [out, error, [status, signal]] = await Promise.all([text(stdout), text(stderr), ended])
  return { status, signal, stdout: out, stderr: error }
}

function argumentsOf(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'latin1')
  } catch {
    return ''
  }
}
