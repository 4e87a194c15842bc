import { AgentError } from '../../base/errors.ts'
import type { ContainerRequest } from './container-spec.ts'

/** A `USER[:GROUP]` word: digits are an id, anything else is a name. */
export interface UserWord {
  readonly user: string | number
  readonly group: string | number | undefined
}

/** The container's own user files; a missing file is an empty text. */
export interface UserFiles {
  readonly passwd: string
  readonly group: string
}

/** The kernel uses 2^32 - 1 for "no id". */
const MOST_ID = 2 ** 32 - 2

/** Parses a `USER[:GROUP]` word. Throws INVALID_ARGUMENT. */
export function parseUser(text: string): UserWord {
  const [, user, group] = /^([^:\s]+)(?::([^:\s]+))?$/.exec(text) ?? []
  if (user === undefined)
    throw new AgentError('INVALID_ARGUMENT', `user ${JSON.stringify(text)}: malformed, want USER[:GROUP]`)
  return { user: idOrName(user), group: group === undefined ? undefined : idOrName(group) }
}

function idOrName(text: string): string | number {
  if (!/^\d+$/.test(text)) return text
  const id = Number(text)
  if (id <= MOST_ID) return id
  throw new AgentError('INVALID_ARGUMENT', `id ${text}: too large, want at most ${MOST_ID}`)
}

/** Whether {@link findUser} needs the container's files for this word. */
export function hasName({ group, user }: UserWord): boolean {
  return typeof user === 'string' || typeof group === 'string'
}

/** The ids of a word, by docker's rules for missing groups. Throws NOT_FOUND for an unknown name. */
export function findUser({ group, user }: UserWord, files: UserFiles): ContainerRequest['user'] {
  const { gid, uid } = typeof user === 'number' ? { uid: user, gid: user } : accountOf(user, files.passwd)
  if (group !== undefined) return { uid, gid: gidOf(group, files.group), additionalGids: [] }
  const memberships = groupsIn(files.group).filter(({ members }) => members.some((name) => name === user))
  return { uid, gid, additionalGids: memberships.map((each) => each.gid) }
}

function accountOf(user: string, passwd: string): { readonly uid: number; readonly gid: number } {
  for (const line of passwd.split('\n')) {
    const [, name, uid, gid] = /^([^:]*):[^:]*:(\d+):(\d+)(?::|$)/.exec(line) ?? []
    if (name === user) return { uid: Number(uid), gid: Number(gid) }
  }
  throw notFound('user', user, '/etc/passwd')
}

function gidOf(group: string | number, text: string): number {
  if (typeof group === 'number') return group
  const found = groupsIn(text).find(({ name }) => name === group)
  if (found === undefined) throw notFound('group', group, '/etc/group')
  return found.gid
}

interface Group {
  readonly name: string
  readonly gid: number
  readonly members: readonly string[]
}

function groupsIn(text: string): readonly Group[] {
  const lines = [...text.matchAll(/^([^:\n]*):[^:\n]*:(\d+)(?::([^:\n]*))?$/gm)]
  return lines.map(([, name = '', gid, members = '']) => ({
    name,
    gid: Number(gid),
    members: members.split(','),
  }))
}

function notFound(kind: 'user' | 'group', name: string, file: string): AgentError {
  const text = `${kind} ${JSON.stringify(name)}: not in the container's ${file}, want a name from there or a number`
  return new AgentError('NOT_FOUND', text)
}
