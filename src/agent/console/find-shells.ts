import { messageOf } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import type { Files } from '../../os/files/files.ts'

/** In the order of attempts. The first shell is part of an extension image. */
const SHELLS = ['/run/kata-extensions/devkit/bin/devkit-sh', '/bin/bash', '/bin/sh']

const EXECUTABLE = 0o111

export interface Shells {
  readonly found: readonly string[]
  /** Such as `/bin/sh: is a fifo`. */
  readonly problems: readonly string[]
  /** The reason when no shell was found. */
  readonly missing: string | undefined
}

/** Opens no file, because it may be a fifo. */
export async function findShells(files: Pick<Files, 'stat'>): Promise<Shells> {
  const [found, problems]: [string[], string[]] = [[], []]
  for (const path of SHELLS) {
    const problem = await problemOf(files, path)
    if (problem === undefined) found.push(path)
    else problems.push(`${path}: ${problem}`)
  }
  return { found, problems, missing: found.length > 0 ? undefined : noShell(problems) }
}

/** Warns at the boot instead of at the first login. Never rejects. */
export async function warnOfMissingShell(files: Pick<Files, 'stat'>, log: Logger): Promise<void> {
  const { missing } = await findShells(files)
  if (missing !== undefined) log.warn('debug console without a shell', { because: missing })
}

export function noShell(problems: readonly string[]): string {
  return `no shell: ${problems.join('; ')}; want one: npm run image -- --with debug-shell`
}

async function problemOf(files: Pick<Files, 'stat'>, path: string): Promise<string | undefined> {
  try {
    const status = await files.stat(path)
    if (status === undefined) return 'not found'
    if (status.kind !== 'file') return `is a ${status.kind}`
    return (status.mode & EXECUTABLE) === 0 ? 'not executable' : undefined
  } catch (error) {
    return messageOf(error)
  }
}
