import { readFile } from 'node:fs/promises'
import { AgentError } from '../../../base/errors.ts'

/** Users of this host that nothing else has. */
export interface UidRange {
  readonly first: number
  readonly count: number
}

/** Beyond the ranges of users, of user namespaces (/etc/subuid) and of systemd's containers (UIDS-GIDS of systemd.io). */
export const UIDS: UidRange = { first: 0x7000_0000, count: 65_536 }

/** Throws FAILED_PRECONDITION naming the first other owner of a user of the range, by the files in `folder`. */
export async function checkUnused({ first, count }: UidRange, folder = '/etc'): Promise<void> {
  for (const [file, start, length] of TABLES) {
    const text = await readFile(`${folder}/${file}`, 'utf8').catch(() => '')
    for (const line of text.split('\n')) {
      const fields = line.split(':')
      const [begin, size] = [
        Number(fields[start] || Number.NaN),
        length === undefined ? 1 : Number(fields[length]),
      ]
      if (!(begin < first + count && begin + size > first)) continue
      const what = `${folder}/${file} gives ${begin} to ${fields[0]}`
      throw new AgentError('FAILED_PRECONDITION', `uids: ${what}, want a range that nothing else has`)
    }
  }
}

/** Their fields with the first number, and with how many there are. */
const TABLES: readonly (readonly [file: string, start: number, length?: number])[] = [
  ['passwd', 2],
  ['group', 2],
  ['subuid', 1, 2],
  ['subgid', 1, 2],
]
