import { execFile } from 'node:child_process'
import { join } from 'node:path'
import { projectRoot } from '../src/build/project.ts'
import { SKIPPED } from './checks/check-c-format.ts'
import { type Counts, NOTHING, oneEntry } from './test/counts.ts'

export interface CheckResult {
  readonly name: string
  readonly ok: boolean
  readonly output: string
  readonly seconds: number
}

/** What the checks of types and of unused code remember of each file. */
export const CHECK_CACHE = 'build/cache/checks'

export const CHECKS = {
  types: ['node_modules/typescript/bin/tsc', '--incremental', '--tsBuildInfoFile', `${CHECK_CACHE}/types`],
  lint: ['node_modules/@biomejs/biome/bin/biome', 'check', '--error-on-warnings'],
  unused: [
    'node_modules/knip/bin/knip.js',
    '--no-progress',
    '--cache',
    '--cache-location',
    `${CHECK_CACHE}/unused`,
  ],
  layers: ['scripts/checks/check-layers.ts'],
  'c-format': ['scripts/checks/check-c-format.ts'],
  commits: ['scripts/checks/check-commits.ts'],
} as const satisfies Record<string, readonly string[]>

export function runChecks(report: (result: CheckResult) => void): Promise<readonly CheckResult[]> {
  const checks = Object.entries(CHECKS)
  return Promise.all(
    checks.map(async ([name, args]) => {
      const result = await runCheck(name, args)
      report(result)
      return result
    }),
  )
}

export function checkText(result: CheckResult): string {
  const { name, ok, output, seconds } = result
  const reason = skipReason(result)
  if (reason !== undefined) return `skip ${name}: ${reason}\n`
  return `${ok ? 'ok  ' : 'FAIL'} ${name} (${seconds.toFixed(1)} s)\n${ok ? '' : `${output}\n`}`
}

export function checkCounts(result: CheckResult): Counts {
  const reason = skipReason(result)
  if (reason === undefined) return oneEntry(result.ok)
  return { ...NOTHING, skipped: [{ name: result.name, reason }] }
}

function skipReason({ ok, output }: CheckResult): string | undefined {
  return ok && output.startsWith(SKIPPED) ? output.slice(SKIPPED.length).trimEnd() : undefined
}

function runCheck(name: string, args: readonly string[]): Promise<CheckResult> {
  const start = performance.now()
  const [program = '', ...rest] = args
  return new Promise((resolve) => {
    execFile(
      process.execPath,
      [join(projectRoot, program), ...rest],
      { cwd: projectRoot, maxBuffer: 64 * 1024 * 1024 },
      (error, stdout, stderr) => {
        const seconds = (performance.now() - start) / 1000
        // A program that failed to start has no output.
        const output = `${stdout}${stderr}` || (error?.message ?? '')
        resolve({ name, ok: error === null, output, seconds })
      },
    )
  })
}

if (import.meta.main) {
  const results = await runChecks((result) => process.stdout.write(checkText(result)))
  process.exitCode = results.every((result) => result.ok) ? 0 : 1
}
