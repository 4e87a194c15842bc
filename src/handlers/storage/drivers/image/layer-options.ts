import { AgentError } from '../../../../base/errors.ts'
import type { Storage } from '../../../../gen/agent.ts'

/** The prefix of all options for the agent; the kernel never sees them. */
const PREFIX = 'X-kata.'

const FLAGS = ['overlay-lower', 'overlay-upper'] as const
const SWITCHES = ['dmverity-enabled', 'gpt-partitioned', 'multi-layer'] as const
const VALUES = ['dmverity.hashoffset', 'dmverity.roothash', 'dmverity.salt', 'partition-number'] as const
const LISTS = ['mkdir.path'] as const

const NAMES: readonly string[] = [...FLAGS, ...SWITCHES, ...VALUES, ...LISTS]

/** The options of a layer: those for the agent, and the `plain` ones for mount(2). */
export interface LayerOptions {
  /** Whether a flag is present, or a switch is `true`. */
  has(name: (typeof FLAGS)[number] | (typeof SWITCHES)[number]): boolean
  value(name: (typeof VALUES)[number]): string | undefined
  values(name: (typeof LISTS)[number]): readonly string[]
  readonly plain: readonly string[]
}

/** All layers with one mount point form an image. */
export function isLayer({ driver, options }: Storage): boolean {
  return driver === 'erofs.multi-layer' || options.includes(`${PREFIX}multi-layer=true`)
}

/** Throws INVALID_ARGUMENT for a wrong or contradictory value, UNIMPLEMENTED for an unknown option. */
export function parseLayerOptions({ options, mountPoint }: Storage): LayerOptions {
  const given = new Map<string, string[]>()
  const plain = options.filter((option) => !option.startsWith(PREFIX))
  for (const option of options) {
    if (!option.startsWith(PREFIX)) continue
    const [name = '', ...rest] = option.slice(PREFIX.length).split('=')
    if (!NAMES.includes(name)) {
      const text = `layer of ${mountPoint}: option ${PREFIX}${name}: not supported by this agent`
      throw new AgentError('UNIMPLEMENTED', text)
    }
    const values = given.get(name) ?? []
    values.push(rest.join('='))
    given.set(name, values)
  }
  const refuse = (name: string, reason: string): never => {
    throw invalidLayer(mountPoint, `option ${PREFIX}${name}: ${reason}`)
  }
  for (const name of FLAGS) if (given.get(name)?.some((value) => value !== '')) refuse(name, 'takes no value')
  for (const name of SWITCHES) {
    if (given.get(name)?.some((value) => value !== 'true' && value !== 'false'))
      refuse(name, 'want true or false')
  }
  for (const name of [...SWITCHES, ...VALUES]) {
    const values = new Set(given.get(name))
    if (values.size > 1) refuse(name, 'given with two values')
    if (values.has('')) refuse(name, 'value is empty')
  }
  return {
    has: (name) => given.get(name)?.some((value) => value !== 'false') ?? false,
    value: (name) => given.get(name)?.[0],
    values: (name) => given.get(name) ?? [],
    plain,
  }
}

export function invalidLayer(mountPoint: string, what: string): AgentError {
  return new AgentError('INVALID_ARGUMENT', `layer of ${mountPoint}: ${what}`)
}

/** A folder that is created in the upper layer before the overlay is mounted. */
export interface LayerDirectory {
  /** Relative to the layer's root. */
  readonly path: string
  readonly mode: number
  readonly owner: { readonly uid: number; readonly gid: number } | undefined
}

/** The host's placeholder for the upper layer's root in a path. */
const UPPER = '{{ mount 0 }}'

const DEFAULT_MODE = 0o755

/** Parses `{{ mount 0 }}/path`, optionally with mode and owner (`:0755:0:0`). Throws what `refused` creates. */
export function parseLayerDirectory(value: string, refused: (reason: string) => AgentError): LayerDirectory {
  const [template = '', mode, uid, gid, ...more] = value.split(':')
  const path = (template.startsWith(UPPER) ? template.slice(UPPER.length) : template).replace(/^\//, '')
  if (path.includes('{{')) throw refused(`"${value}" names a read-only layer`)
  if (path.split('/').some((name) => name === '' || name === '.' || name === '..')) {
    throw refused(`"${value}" is not a normalised path`)
  }
  const isPlainMode = mode === undefined || /^[0-7]{1,4}$/.test(mode)
  const isOwner = uid === undefined || (gid !== undefined && isId(uid) && isId(gid))
  if (!isPlainMode || !isOwner || more.length > 0) throw refused(`"${value}", want path:mode:uid:gid`)
  return {
    path,
    mode: mode === undefined ? DEFAULT_MODE : Number.parseInt(mode, 8),
    owner: uid === undefined ? undefined : { uid: Number(uid), gid: Number(gid) },
  }
}

/** chown(2) takes the highest value as "leave unchanged". */
function isId(text: string): boolean {
  return /^\d{1,10}$/.test(text) && Number(text) < 0xff_ff_ff_ff
}

/** The storages that are attached together: a single one, or the layers of an image in their order. */
export type StorageGroup = readonly [Storage, ...Storage[]]

/** Each layer joins the group of the first layer with its mount point. */
export function groupLayers(storages: readonly Storage[]): readonly StorageGroup[] {
  const groups: [Storage, ...Storage[]][] = []
  const images = new Map<string, [Storage, ...Storage[]]>()
  for (const storage of storages) {
    const image = isLayer(storage) ? images.get(storage.mountPoint) : undefined
    if (image !== undefined) {
      image.push(storage)
      continue
    }
    const group: [Storage, ...Storage[]] = [storage]
    groups.push(group)
    if (isLayer(storage)) images.set(storage.mountPoint, group)
  }
  return groups
}
