import { spawnSync } from 'node:child_process'

const SHOWN_LINES = 15

/**
 * Runs a program to its end without printing its output.
 * @param {string} program
 * @param {readonly string[]} args
 * @param {{ env?: NodeJS.ProcessEnv, cwd?: string }} [options]
 * @returns {{ ok: boolean, output: string }} its last lines
 */
export function quietly(program, args, options = {}) {
  const result = spawnSync(program, args, {
    ...options,
    stdio: ['ignore', 'pipe', 'pipe'],
    encoding: 'utf8',
    maxBuffer: 256 * 1024 * 1024,
  })
  if (result.error !== undefined) return { ok: false, output: `${program}: ${result.error.message}\n` }
  const lines = `${result.stdout}${result.stderr}`.trimEnd().split('\n')
  return { ok: result.status === 0, output: `${lines.slice(-SHOWN_LINES).join('\n')}\n` }
}
