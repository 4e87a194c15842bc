import { randomInt } from 'node:crypto'
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readlinkSync,
  realpathSync,
  rmSync,
  statSync,
  symlinkSync,
} from 'node:fs'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { AgentError, errnoOf } from '../../../base/errors.ts'
import type { Logger } from '../../../base/log.ts'
import { fromNodeError } from '../../../os/errors.ts'

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

/** The users of instances, which no other daemon or hypervisor of this host takes. */
export interface Uids {
  /** Claims the users that instances have, and gives back all others of this state folder. To be called before any claim. */
  keep(uids: Iterable<number>): void
  /** A user that nothing has. Throws RESOURCE_EXHAUSTED. */
  claim(): number
  release(uid: number): void
}

/** Gone when the host has booted, as all processes are. */
const CLAIMS = '/run/microvm/uids'

/**
 * The claims are links in a folder of the host: the name is the user, and the target the state folder. A claim whose state folder
 * is gone counts no longer.
 */
export function uidClaims(parts: {
  readonly range: UidRange
  readonly stateFolder: string
  readonly log: Logger
  readonly folder?: string
}): Uids {
  const { range, log, folder = CLAIMS } = parts
  const { first, count } = range
  const stateFolder = realpathSync(parts.stateFolder)
  const pathOf = (uid: number | string) => join(folder, `${uid}`)
  const isClaimed = (uid: number): boolean => {
    try {
      symlinkSync(stateFolder, pathOf(uid))
      return true
    } catch (error) {
      if (errnoOf(error) === 'EEXIST') return false
      throw fromNodeError('symlink', pathOf(uid), error)
    }
  }
  const unclaim = (uid: number | string) => rmSync(pathOf(uid), { force: true })
  const release = (uid: number | string) => {
    if (targetOf(pathOf(uid)) === stateFolder) unclaim(uid)
  }
  return {
    keep: (uids) => {
      const kept = new Set([...uids, ...groupsOf(join(stateFolder, 'instances'))])
      // The folder above is also that of the runs of ./microvm, which is for its user alone.
      mkdirSync(folder, { recursive: true, mode: 0o700 })
      for (const name of readdirSync(folder)) {
        const target = targetOf(pathOf(name))
        if (target !== undefined && target !== stateFolder && !existsSync(target)) unclaim(name)
        else if (!kept.has(Number(name))) release(name)
      }
      for (const uid of kept) {
        if (uid < first || uid >= first + count || isClaimed(uid)) continue
        const target = targetOf(pathOf(uid))
        if (target !== stateFolder) log.warn('two instances have one user', { uid, other: target })
      }
    },
    claim: () => {
      // At random, so that what another user has left is not soon of an instance.
      const begin = randomInt(count)
      for (let index = 0; index < count; index++) {
        const uid = first + ((begin + index) % count)
        if (isClaimed(uid)) return uid
      }
      throw new AgentError(
        'RESOURCE_EXHAUSTED',
        `uids: all ${count} are used, want more in the configuration`,
      )
    },
    release,
  }
}

/** Each instance's folder has the group of its user, also one whose record cannot be read. */
function groupsOf(instances: string): readonly number[] {
  if (!existsSync(instances)) return []
  return readdirSync(instances).flatMap((name) => {
    const { gid } = statSync(join(instances, name), { throwIfNoEntry: false }) ?? { gid: 0 }
    return gid === 0 ? [] : [gid]
  })
}

function targetOf(path: string): string | undefined {
  try {
    return readlinkSync(path)
  } catch {
    // Given back meanwhile.
    return undefined
  }
}
