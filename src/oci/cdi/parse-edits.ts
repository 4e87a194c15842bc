import type { Hook, Hooks, Mount } from '../../gen/oci.ts'
import { LARGEST_MAJOR, LARGEST_MINOR } from '../check/check-field.ts'
import type { CdiHook, CdiNode, ContainerEdits } from './container-edits.ts'
import { anyTextOf, fieldsOf, listOf, malformed, numberOf, optional, pathOf, textOf } from './fields.ts'

const HOOK_LISTS: ReadonlyMap<string, keyof Hooks> = new Map([
  ['prestart', 'Prestart'],
  ['createRuntime', 'CreateRuntime'],
  ['createContainer', 'CreateContainer'],
  ['startContainer', 'StartContainer'],
  ['poststart', 'Poststart'],
  ['poststop', 'Poststop'],
])

/**
 * Parses the `containerEdits` at `where` in a CDI specification. Throws INTERNAL naming a malformed or unknown field: a
 * partly configured device would fail inside the container, without a useful error.
 */
export function parseEdits(value: unknown, where: string): ContainerEdits {
  const names = ['env', 'deviceNodes', 'mounts', 'hooks', 'additionalGids'] as const
  const { env, deviceNodes, mounts, hooks, additionalGids } = fieldsOf(value, where, names)
  return {
    env: listOf(env, `${where}.env`, parseVariable),
    deviceNodes: listOf(deviceNodes, `${where}.deviceNodes`, parseNode),
    mounts: listOf(mounts, `${where}.mounts`, parseMount),
    hooks: listOf(hooks, `${where}.hooks`, parseHook),
    additionalGids: listOf(additionalGids, `${where}.additionalGids`, numberOf),
  }
}

function parseVariable(value: unknown, where: string): string {
  const entry = textOf(value, where)
  if (entry.indexOf('=') > 0) return entry
  throw malformed(`${where}: "${entry}", want NAME=value`)
}

const NODE_FIELDS = [
  'path',
  'hostPath',
  'type',
  'major',
  'minor',
  'fileMode',
  'permissions',
  'uid',
  'gid',
] as const

function parseNode(value: unknown, where: string): CdiNode {
  const fields = fieldsOf(value, where, NODE_FIELDS)
  const at = (name: (typeof NODE_FIELDS)[number]) => [fields[name], `${where}.${name}`] as const
  return {
    path: pathOf(...at('path')),
    hostPath: optional(...at('hostPath'), pathOf),
    type: optional(...at('type'), (type, place) => matching(type, place, /^[bcup]$/, 'b, c, u or p')),
    major: optional(...at('major'), (value, place) => numberOf(value, place, LARGEST_MAJOR)),
    minor: optional(...at('minor'), (value, place) => numberOf(value, place, LARGEST_MINOR)),
    fileMode: optional(...at('fileMode'), numberOf),
    permissions: optional(...at('permissions'), (text, place) =>
      matching(text, place, /^([rwm]+|none)$/, 'letters of rwm, or none'),
    ),
    uid: optional(...at('uid'), numberOf),
    gid: optional(...at('gid'), numberOf),
  }
}

/** Without a type, a mount is a bind mount of a path in the guest. */
function parseMount(value: unknown, where: string): Mount {
  const fields = fieldsOf(value, where, ['hostPath', 'containerPath', 'type', 'options'])
  const type = optional(fields.type, `${where}.type`, textOf) ?? 'bind'
  const options = [...listOf(fields.options, `${where}.options`, textOf)]
  const isBind = [type, ...options].some((word) => word === 'bind' || word === 'rbind')
  const source = isBind ? pathOf : textOf
  return {
    source: source(fields.hostPath, `${where}.hostPath`),
    destination: pathOf(fields.containerPath, `${where}.containerPath`),
    type,
    options,
  }
}

function parseHook(value: unknown, where: string): CdiHook {
  const fields = fieldsOf(value, where, ['hookName', 'path', 'args', 'env', 'timeout'])
  const name = textOf(fields.hookName, `${where}.hookName`)
  const list = HOOK_LISTS.get(name)
  if (list === undefined) throw malformed(`${where}.hookName: unknown hook "${name}"`)
  const hook: Hook = {
    Path: pathOf(fields.path, `${where}.path`),
    Args: [...listOf(fields.args, `${where}.args`, anyTextOf)],
    Env: [...listOf(fields.env, `${where}.env`, parseVariable)],
    Timeout: BigInt(optional(fields.timeout, `${where}.timeout`, numberOf) ?? 0),
  }
  return { list, hook }
}

function matching(value: unknown, where: string, pattern: RegExp, wanted: string): string {
  const text = textOf(value, where)
  if (pattern.test(text)) return text
  throw malformed(`${where}: "${text}", want ${wanted}`)
}
