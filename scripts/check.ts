import { execFile } from 'node:child_process'
import { join } from 'node:path'
import { projectRoot } from './cache.ts'

/** The end of one check. */
export interface CheckResult {
  readonly name: string
  readonly ok: boolean
  /** What the tool printed. */
  readonly output: string
  readonly seconds: number
}

/** Every check and the program that does it, as arguments of Node. */
export const CHECKS = {
  types: ['node_modules/typescript/bin/tsc'],
  lint: ['node_modules/@biomejs/biome/bin/biome', 'check', '--error-on-warnings'],
  unused: ['node_modules/knip/bin/knip.js', '--no-progress'],
  layers: ['scripts/check-layers.ts'],
} as const satisfies Record<string, readonly string[]>

/** Runs all checks at the same time; `report` gets each result as it comes. */
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

/** The line about a check, and below it what a failed one printed. */
export function checkText({ name, ok, output, seconds }: CheckResult): string {
  return `${ok ? 'ok  ' : 'FAIL'} ${name} (${seconds.toFixed(1)} s)\n${ok ? '' : `${output}\n`}`
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
        // A program that did not even start has printed nothing.
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
