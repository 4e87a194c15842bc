import { spawn } from 'node:child_process'
import { join } from 'node:path'
import { projectRoot } from '../../../../src/build/project.ts'
import type { Death } from '../deaths/mortal-registry.ts'

export const MORTAL_DAEMON = join(projectRoot, 'test/support/wing/deaths/mortal-daemon.ts')

export interface LifeEnd {
  /** The last call that was begun; `end` after the last one. */
  readonly last: string
  readonly signal: string | null
  readonly errors: string
}

/** LIFE, DAEMON_LIFE and DOCUMENT_LIFE. */
export type LifeName = 'machine' | 'daemons' | 'documents'

/** Runs a daemon's instances in a process of their own, from the call `first` on. */
export async function runLife(
  life: LifeName,
  folder: string,
  first: string,
  death?: Death,
): Promise<LifeEnd> {
  const words = death === undefined ? ['0', 'before'] : [`${death.commit}`, death.when]
  const child = spawn(process.execPath, [MORTAL_DAEMON, life, folder, first, ...words], {
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  const [output, errors] = [child.stdout, child.stderr].map((stream) => {
    const text = { all: '' }
    stream.setEncoding('utf8').on('data', (chunk: string) => {
      text.all += chunk
    })
    return text
  })
  const signal = await new Promise<string | null>((resolve) => child.once('close', (_, by) => resolve(by)))
  return { last: output?.all.trim().split('\n').at(-1) ?? '', signal, errors: errors?.all ?? '' }
}
