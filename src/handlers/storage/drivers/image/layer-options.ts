import { AgentError } from '../../../../base/errors.ts'
import type { Storage } from '../../../../gen/agent.ts'

/** What all options for agents begin with; the kernel never sees them. */
const PREFIX = 'X-kata.'

const FLAGS = ['overlay-lower', 'overlay-upper'] as const
const SWITCHES = ['dmverity-enabled', 'gpt-partitioned', 'multi-layer'] as const
const VALUES = ['dmverity.hashoffset', 'dmverity.roothash', 'dmverity.salt', 'partition-number'] as const
const LISTS = ['mkdir.path'] as const

const NAMES: readonly string[] = [...FLAGS, ...SWITCHES, ...VALUES, ...LISTS]

/** What the options of a layer say to the agent, and what is left for mount(2). */
export interface LayerOptions {
  /** Whether a word is there, or a switch is `true`. */
  has(name: (typeof FLAGS)[number] | (typeof SWITCHES)[number]): boolean
  /** The value of an option that may be there once. */
  value(name: (typeof VALUES)[number]): string | undefined
  /** The values of an option that may be there several times. */
  values(name: (typeof LISTS)[number]): readonly string[]
  readonly plain: readonly string[]
}

/** Whether a storage is a layer of an image: those of one mount point belong together (spec E.3.7). */
export function isLayer({ driver, options }: Storage): boolean {
  return driver === 'erofs.multi-layer' || options.includes(`${PREFIX}multi-layer=true`)
}

/**
 * Reads the options of a layer. Throws INVALID_ARGUMENT for one that contradicts another or has no proper value,
 * UNIMPLEMENTED for one that is not known: a layer that is set up otherwise than the host wants must not be used.
 */
export function parseLayerOptions({ options, mountPoint }: Storage): LayerOptions {
  const given = new Map<string, string[]>()
  const plain = options.filter((option) => !option.startsWith(PREFIX))
  for (const option of options) {
    if (!option.startsWith(PREFIX)) continue
    const [name = '', ...rest] = option.slice(PREFIX.length).split('=')
    if (!NAMES.includes(name)) {
      const text = `layer of ${mountPoint}: option ${PREFIX}${name} is not supported by this agent`
      throw new AgentError('UNIMPLEMENTED', text)
    }
    const values = given.get(name) ?? []
    values.push(rest.join('='))
    given.set(name, values)
  }
  const refuse = (name: string, reason: string): never => {
    throw invalidLayer(mountPoint, `option ${PREFIX}${name} ${reason}`)
  }
  for (const name of FLAGS) if (given.get(name)?.some((value) => value !== '')) refuse(name, 'has no value')
  for (const name of SWITCHES) {
    if (given.get(name)?.some((value) => value !== 'true' && value !== 'false'))
      refuse(name, 'is true or false')
  }
  for (const name of [...SWITCHES, ...VALUES]) {
    const values = new Set(given.get(name))
    if (values.size > 1) refuse(name, 'has two values')
    if (values.has('')) refuse(name, 'has no value')
  }
  return {
    has: (name) => given.get(name)?.some((value) => value !== 'false') ?? false,
    value: (name) => given.get(name)?.[0],
    values: (name) => given.get(name) ?? [],
    plain,
  }
}

/** INVALID_ARGUMENT about a layer of the image at a mount point. */
export function invalidLayer(mountPoint: string, what: string): AgentError {
  return new AgentError('INVALID_ARGUMENT', `layer of ${mountPoint}: ${what}`)
}
