import { didYouMean } from '../../base/suggest.mjs'
import {
  boolean,
  either,
  integer,
  isObject,
  list,
  object,
  oneOf,
  optional,
  type Read,
  record,
  text,
} from '../machine/document/shape.ts'
import { catalogueName, uuid } from '../machine/document/words.ts'
import { checkInterface } from '../spec/check-backend.ts'
import { checkPath } from '../spec/check-path.ts'
import { refuse, shown } from '../spec/component-path.ts'
import { plainDiskUrl } from '../spec/spec.ts'

/** What an administrator lets documents name. All fields have the names of the file. */
const MAX_ENTRIES = 4096
const MOST_CPU = 8191

const tenantName = text(/^[a-z0-9][a-z0-9_-]{0,31}$/, 'the name of a tenant: 1 to 32 of a-z, 0-9, _ and -')
/** Who may use an entry; by default only the administrator. */
const tenants = optional(list(tenantName, MAX_ENTRIES))
const path = text(/^\/\P{Cc}{0,4094}$/u, 'an absolute path')
const number = integer(1, Number.MAX_SAFE_INTEGER)

const limits = object({ iops: optional(number), bytes_per_second: optional(number) })

const HTTPS = /https:\/\/[^\s/?#@\\]+\/[^\s?#\\]*/
/** Portal, target and number of the unit. */
const ISCSI = /iscsi:\/\/([^\s/?#@\\]+)\/((?:iqn|eui|naa)\.[\w.:-]{1,219})\/(\d{1,3})/
/** NBD in TLS: server and export. */
const NBDS = /nbds:\/\/([^\s/?#@\\]+)\/[\w.~/-]{0,255}/
const diskUrl = text(
  new RegExp(`^(?:${HTTPS.source}|${ISCSI.source}|${NBDS.source})$`),
  'https://images.example/disk.raw, iscsi://storage.example/iqn.2026-11.example:disk/1 or nbds://storage.example/disk, without user, password and query',
)

/** A disk of one writer at a time. */
const volume = object({
  path: optional(path),
  /** In place of a path: a raw disk of a server. */
  url: optional(diskUrl),
  username: optional(text(/^[^\p{Cc}:]{1,255}$/u, 'a name without a colon')),
  /** Of nbds: the file with the certificates in PEM that the server's is to be signed by, and the name in that. */
  ca: optional(path),
  tls_name: optional(text(/^[A-Za-z0-9.:-]{1,253}$/, 'the name of a host')),
  /** Never of a document: the header of a qcow2 image, which a guest could write into a raw one, names other files. */
  format: optional(oneOf(['raw', 'qcow2'])),
  read_only: optional(boolean),
  /** The name of the secret that opens a LUKS image, goes with the user's name, or has the certificate and key of a client in PEM. */
  secret: optional(catalogueName),
  /** A document may wish for less. */
  limits: optional(limits),
  tenants,
})

/** A file that no guest writes: a disk, a kernel or an initrd. */
const image = object({ path, format: optional(oneOf(['raw', 'qcow2'])), tenants })

const interfaceName = text(/^[!-~]{1,15}$/, 'the name of an interface')
const network = object({
  /** The bridge that a machine's tap becomes a port of. */
  bridge: optional(interfaceName),
  /** The name of the tap, of which there is one; by default each machine has one of its own. */
  interface: optional(interfaceName),
  passt: optional(boolean),
  tenants,
})

const folder = object({ path, read_only: optional(boolean), tenants })
const secret = object({ id: uuid, tenants })

/** `CONFIG_NR_CPUS` of Debian's kernels is 8192. */
const hostCpus = either(
  text(/^\d{1,4}(-\d{1,4})?(,\d{1,4}(-\d{1,4})?)*$/, 'numbers such as 2-7,10'),
  list(integer(0, MOST_CPU), MOST_CPU + 1),
  (short, at) => short.split(',').flatMap((part) => rangeOf(part, at)),
)

function rangeOf(part: string, at: string): readonly number[] {
  const [first = 0, last = first] = part.split('-').map(Number)
  if (last < first || last > MOST_CPU) refuse(at, `${part}: want 0 to ${MOST_CPU}, the lower number first`)
  return Array.from({ length: last - first + 1 }, (_, index) => first + index)
}

const pool = object({ cpus: hostCpus, tenants })

const shape = object({
  /** Folders below which all paths lie, also where links lead. */
  roots: optional(list(path, 64)),
  volumes: optional(record(volume)),
  images: optional(record(image)),
  networks: optional(record(network)),
  folders: optional(record(folder)),
  secrets: optional(record(secret)),
  cpu_pools: optional(record(pool)),
})

type Tables = Omit<Read<typeof shape>, 'roots'>
export type Table = keyof Tables
export type Entry<Of extends Table> = NonNullable<Tables[Of]>[string]
export type Entries = { readonly [Of in Table]: Readonly<Record<string, Entry<Of>>> }
export type Catalogue = Entries & { readonly roots: readonly string[] }

export const NO_CATALOGUE: Catalogue = {
  ...{ roots: [], volumes: {}, images: {}, networks: {}, folders: {}, secrets: {}, cpu_pools: {} },
}

/** Checks the value of a TOML file. Throws INVALID_ARGUMENT that names the field, and what is allowed. */
export function readCatalogue(value: unknown): Catalogue {
  if (isObject(value)) checkNames(value)
  const read = shape.read(value, '')
  const { roots = [], volumes = {}, images = {}, networks = {}, folders = {}, secrets = {} } = read
  const { cpu_pools = {} } = read
  const catalogue = { roots, volumes, images, networks, folders, secrets, cpu_pools }
  checkPlaces(catalogue)
  checkVolumes(catalogue)
  checkNetworks(catalogue)
  checkSecrets(catalogue)
  checkPools(catalogue)
  return catalogue
}

function checkNames(value: Readonly<Record<string, unknown>>): void {
  for (const [table, entries] of Object.entries(value)) {
    if (!isObject(entries)) continue
    const names = Object.keys(entries)
    if (names.length > MAX_ENTRIES) refuse(table, `${names.length} entries, want at most ${MAX_ENTRIES}`)
    for (const name of names) catalogueName.read(name, table)
  }
}

/** Paths lie below the roots as they are written. Where links lead is seen at a start. */
function checkPlaces(catalogue: Catalogue): void {
  const { roots, volumes, images, folders } = catalogue
  for (const [index, root] of roots.entries()) {
    checkPath(`roots[${index}]`, root)
    if (isPlain(root)) continue
    refuse(
      `roots[${index}]`,
      `${shown(root)}: want a folder other than /, without ".", "//" and a "/" at its end`,
    )
  }
  for (const [table, entries] of Object.entries({ volumes, images, folders })) {
    for (const [name, entry] of Object.entries(entries)) {
      const own: Readonly<Record<string, string | undefined>> = entry
      for (const field of ['path', 'ca'] as const) checkPlace(`${table}.${name}.${field}`, own[field], roots)
    }
  }
  for (const name of Object.keys(images)) {
    // A disk names either.
    if (Object.hasOwn(volumes, name)) refuse(`images.${name}`, `already the name of volumes.${name}`)
  }
}

function checkPlace(at: string, place: string | undefined, roots: readonly string[]): void {
  if (place === undefined) return
  checkPath(at, place)
  if (!isPlain(place)) refuse(at, `${shown(place)}: want it without ".", "//" and a "/" at its end`)
  if (roots.some((root) => place.startsWith(`${root}/`))) return
  const want = roots.length === 0 ? 'want the folder above in roots' : `want one below ${roots.join(' or ')}`
  refuse(at, `${shown(place)}: ${want}`)
}

function isPlain(place: string): boolean {
  return place
    .slice(1)
    .split('/')
    .every((part) => part !== '' && part !== '.')
}

function checkVolumes({ volumes }: Catalogue): void {
  const taken = new Map<string, string>()
  for (const [name, volume] of Object.entries(volumes)) {
    const { format, path: file, read_only, url } = volume
    const at = `volumes.${name}`
    if ((file === undefined) === (url === undefined)) refuse(at, 'want path or url')
    checkLogin(at, volume)
    if (url === undefined) continue
    if (!URL.canParse(url)) refuse(`${at}.url`, `${shown(url)}: no address`)
    if (format === 'qcow2') refuse(`${at}.format`, 'qcow2: of a server only raw disks')
    if (read_only === false && url.startsWith('https:'))
      refuse(`${at}.read_only`, 'false: https writes nothing')
    if (read_only === true || url.startsWith('https:')) continue
    const other = taken.get(plainDiskUrl(url))
    if (other !== undefined) refuse(`${at}.url`, `already the disk of ${other}`)
    taken.set(plainDiskUrl(url), at)
  }
}

/** By which the server and its client know each other. */
function checkLogin(at: string, { ca, secret: known, tls_name, url, username }: Entry<'volumes'>): void {
  const isTls = url?.startsWith('nbds:') === true
  if (isTls && ca === undefined) refuse(`${at}.ca`, 'missing, nbds has no certificates of its own')
  for (const [field, value] of Object.entries({ ca, tls_name }))
    if (!isTls && value !== undefined) refuse(`${at}.${field}`, 'is for a url of nbds')
  if (username !== undefined && (url === undefined || isTls))
    refuse(`${at}.username`, 'is for https and iscsi')
  if (url !== undefined && !isTls && (username === undefined) !== (known === undefined))
    refuse(at, 'a url has username and secret, or neither')
}

function checkNetworks({ networks }: Catalogue): void {
  const taken = new Map<string, string>()
  for (const [name, { bridge, interface: own, passt }] of Object.entries(networks)) {
    const at = `networks.${name}`
    if (bridge !== undefined) checkInterface(`${at}.bridge`, bridge)
    if (passt === true && (bridge ?? own) !== undefined) refuse(at, 'passt has no bridge and no interface')
    if (passt !== true && bridge === undefined && own === undefined)
      refuse(at, 'want bridge, interface, or passt = true')
    if (own === undefined) continue
    checkInterface(`${at}.interface`, own)
    const other = taken.get(own)
    if (other !== undefined) refuse(`${at}.interface`, `${own}: already that of ${other}`)
    taken.set(own, at)
  }
}

function checkSecrets({ secrets, volumes }: Catalogue): void {
  for (const [name, { format, secret: wanted }] of Object.entries(volumes)) {
    if (wanted === undefined) continue
    const at = `volumes.${name}.secret`
    if (!Object.hasOwn(secrets, wanted)) {
      const known = Object.keys(secrets)
      refuse(at, `${shown(wanted)}: not in secrets${didYouMean(wanted, known, 'want one of them')}`)
    }
    if (format === 'qcow2') refuse(at, 'only a raw volume can be a LUKS image')
  }
}

/** A CPU of two pools would be counted twice. */
function checkPools({ cpu_pools: pools }: Catalogue): void {
  const taken = new Map<number, string>()
  for (const [name, { cpus }] of Object.entries(pools)) {
    const at = `cpu_pools.${name}`
    for (const cpu of cpus) {
      const other = taken.get(cpu)
      if (other !== undefined) refuse(`${at}.cpus`, `${cpu}: already one of ${other}`)
      taken.set(cpu, at)
    }
  }
}
