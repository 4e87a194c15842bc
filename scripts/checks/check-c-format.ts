import { spawnSync } from 'node:child_process'
import { globSync } from 'node:fs'
import { projectRoot } from '../../src/build/project.ts'

/** The first word of a check's output when it cannot run here. */
export const SKIPPED = 'skipped: '

/** Versions format differently; this one comes with Debian 12's `clang-format`, which `npm test` installs. */
const PROGRAM = 'clang-format-14'

export interface CFormatCheck {
  readonly root: string
  readonly program?: string
  /** On CI a missing program is a failure. */
  readonly isCi: boolean
}

export function checkCFormat({ root, program = PROGRAM, isCi }: CFormatCheck): {
  ok: boolean
  output: string
} {
  const files = globSync('{native,test}/**/*.{c,h}', { cwd: root }).sort()
  const { error, status, stderr } = spawnSync(program, ['--dry-run', '--Werror', '--style=file', ...files], {
    cwd: root,
    encoding: 'utf8',
  })
  if (error === undefined) return { ok: status === 0, output: stderr }
  const missing = `${program} cannot be run (${error.message}); on Debian 12 npm test installs it`
  return { ok: !isCi, output: `${isCi ? '' : SKIPPED}${missing}\n` }
}

if (import.meta.main) {
  const { ok, output } = checkCFormat({ root: projectRoot, isCi: process.env.CI === 'true' })
  process.stdout.write(output)
  process.exitCode = ok ? 0 : 1
}
