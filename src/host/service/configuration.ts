import { readFile } from 'node:fs/promises'
import { isAbsolute, normalize } from 'node:path'
import { AgentError, errnoOf, messageOf } from '../../base/errors.ts'
import { UIDS, type UidRange } from '../instance/machine/uids.ts'
import { DEFAULT_QUOTA, type Quota, type Quotas } from '../instance/record/quota.ts'
import { HOST_FIELDS, type HostSettings, hostSettings } from './hosts/host-settings.ts'

export interface Tenant {
  readonly name: string
  /** Owns the tenant's socket. */
  readonly uid: number
  /** Folders of the host whose files the tenant may give to its machines. */
  readonly folders: readonly string[]
  /** What its instances may take together; {@link DEFAULT_QUOTA} by default. */
  readonly quota?: Quota
}

export interface Configuration {
  readonly tenants: readonly Tenant[]
  /** The users of the instances' processes; {@link UIDS} by default. */
  readonly uids?: UidRange | undefined
  /** The file that explains the names in documents; /etc/microvm/catalogue.toml by default. */
  readonly catalogue?: string | undefined
  /** How many templates are kept; {@link DEFAULT_TEMPLATES} by default. */
  readonly templates?: number | undefined
  /** This host among others; without it machines come from nowhere, and go nowhere. */
  readonly host?: HostSettings | undefined
  /** The URL of a collector of OTLP over HTTP, which gets the spans of operations. */
  readonly otlpEndpoint?: string | undefined
}

export const DEFAULT_TEMPLATES = 8
const MOST_TEMPLATES = 100

export const NO_CONFIGURATION: Configuration = { tenants: [] }

export const TENANT_NAME = /^[a-z0-9][a-z0-9_-]{0,31}$/

/** The last uid means "none" to chown(2). */
const MOST_UID = 2 ** 32 - 2

/** Reads a TOML file. Throws INVALID_ARGUMENT with the file and the key that is wrong. */
export async function readConfiguration(path: string): Promise<Configuration> {
  const fail = (text: string): never => {
    throw new AgentError('INVALID_ARGUMENT', `${path}: ${text}`)
  }
  const text = await readFile(path, 'utf8').catch((error) => fail(errnoOf(error) ?? messageOf(error)))
  const { parse } = await import('smol-toml')
  let root: unknown
  try {
    root = parse(text)
  } catch (error) {
    return fail(messageOf(error))
  }
  const names = ['tenants', 'uids', 'catalogue', 'templates', 'host', 'otlp_endpoint']
  const {
    tenants = {},
    uids = {},
    catalogue,
    templates,
    host,
    otlp_endpoint: endpoint,
  } = table('', root, names, fail)
  const range = uidsOf(uids, fail)
  const configuration = {
    uids: range,
    ...(catalogue !== undefined && { catalogue: pathAt('catalogue', catalogue, fail) }),
    ...(templates !== undefined && { templates: templatesOf(templates, fail) }),
    ...(host !== undefined && {
      host: hostSettings(table('host', host, HOST_FIELDS, fail), {
        fail,
        path: (where, path) => pathAt(where, path, fail),
      }),
    }),
    ...(endpoint !== undefined && { otlpEndpoint: endpointOf(endpoint, fail) }),
    tenants: Object.entries(table('tenants', tenants, undefined, fail)).map(([name, value]) =>
      tenantOf(name, value, fail),
    ),
  }
  const inRange = configuration.tenants.find(
    ({ uid }) => uid >= range.first && uid < range.first + range.count,
  )
  if (inRange !== undefined)
    fail(`uids: ${inRange.uid} is tenant ${inRange.name}'s, want a range of no one's users`)
  return configuration
}

type Fail = (text: string) => never

function tenantOf(name: string, value: unknown, fail: Fail): Tenant {
  const where = `tenants.${name}`
  if (!TENANT_NAME.test(name)) fail(`${where}: invalid name, want 1 to 32 of a-z, 0-9, _ and -`)
  const names = ['uid', 'folders', 'instances', 'memory_mib', 'cpus', 'saved_machines', 'saved_mib']
  const { uid, folders = [], ...numbers } = table(where, value, names, fail)
  if (typeof uid !== 'number' || !Number.isInteger(uid) || uid < 0 || uid > MOST_UID)
    return fail(`${where}.uid: want the number of a user`)
  if (!Array.isArray(folders)) return fail(`${where}.folders: want a list of paths`)
  return {
    ...{ name, uid, folders: folders.map((folder) => folderOf(where, folder, fail)) },
    quota: quotaOf(where, numbers, fail),
  }
}

function quotaOf(where: string, numbers: Readonly<Record<string, unknown>>, fail: Fail): Quota {
  const number = (name: string, standard: number) => {
    const { [name]: value = standard } = numbers
    if (typeof value === 'number' && Number.isSafeInteger(value) && value >= 0) return value
    return fail(`${where}.${name}: want a whole number`)
  }
  return {
    instances: number('instances', DEFAULT_QUOTA.instances),
    memoryMib: number('memory_mib', DEFAULT_QUOTA.memoryMib),
    cpus: number('cpus', DEFAULT_QUOTA.cpus),
    savedMachines: number('saved_machines', DEFAULT_QUOTA.savedMachines),
    savedMib: number('saved_mib', DEFAULT_QUOTA.savedMib),
  }
}

export function quotasOf(tenants: readonly Tenant[]): Quotas {
  return new Map(tenants.map(({ name, quota = DEFAULT_QUOTA }) => [name, quota]))
}

function uidsOf(value: unknown, fail: Fail): UidRange {
  const { first = UIDS.first, count = UIDS.count } = table('uids', value, ['first', 'count'], fail)
  const isNumber = (number: unknown) => typeof number === 'number' && Number.isInteger(number) && number > 0
  if (!isNumber(first)) return fail('uids.first: want the number of a user above 0')
  if (!isNumber(count) || Number(first) + Number(count) - 1 > MOST_UID)
    return fail(`uids.count: want at least 1, and no user above ${MOST_UID}`)
  return { first: Number(first), count: Number(count) }
}

function templatesOf(value: unknown, fail: Fail): number {
  const isNumber =
    typeof value === 'number' && Number.isInteger(value) && value > 0 && value <= MOST_TEMPLATES
  return isNumber ? value : fail(`templates: want a whole number from 1 to ${MOST_TEMPLATES}`)
}

/** Plain HTTP, as of the agent. */
function endpointOf(value: unknown, fail: Fail): string {
  const url = typeof value === 'string' && URL.canParse(value) ? new URL(value) : undefined
  if (url?.protocol === 'http:' && url.username === '' && url.search === '') return url.href
  return fail('otlp_endpoint: want http://HOST, with :PORT and /PATH if need be')
}

function folderOf(where: string, folder: unknown, fail: Fail): string {
  return pathAt(`${where}.folders`, folder, fail).replace(/\/$/, '')
}

function pathAt(where: string, path: unknown, fail: Fail): string {
  if (typeof path === 'string' && isAbsolute(path) && normalize(path) === path && path !== '/') return path
  return fail(`${where}: ${JSON.stringify(path)}, want an absolute path without . and ..`)
}

/** The members of a table; with `keys`, no others. */
function table(
  where: string,
  value: unknown,
  keys: readonly string[] | undefined,
  fail: Fail,
): Readonly<Record<string, unknown>> {
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    return fail(`${where}: want a table`)
  const entries = Object.entries(value)
  const unknown = entries.find(([key]) => keys !== undefined && !keys.includes(key))
  if (unknown !== undefined) fail(`${where === '' ? '' : `${where}.`}${unknown[0]}: unknown`)
  return Object.fromEntries(entries)
}
