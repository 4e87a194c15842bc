import { createHash } from 'node:crypto'
import { AgentError } from '../../base/errors.ts'
import { didYouMean } from '../../base/suggest.mjs'
import { FIRMWARE_KEYS, type Machine, type MachineBackend } from '../machine/machine.ts'
import { pathOf, shown } from '../spec/component-path.ts'
import type { Backend, FileBackend, NetworkDisk } from '../spec/spec.ts'
import type { Catalogue, Entries, Entry, Table } from './catalogue.ts'

/** The fields of a document that name a backend, by its key. */
export type FieldNames = ReadonlyMap<string, string>

interface LookupOptions {
  readonly fields?: FieldNames
  /** Whether the administrator gave the machine's document, and with it the paths and bridges in it. */
  readonly isPrivileged?: boolean
}

/**
 * What this host puts behind a machine's devices, by the keys of the machine's backends; the firmware's files have
 * the keys `firmware-kernel` and `firmware-initrd`. A backend that names nothing of the host, such as an empty drive or a screen, has none.
 *
 * `tenant` is whose machine it is; undefined or empty: the administrator's, who may name everything. Throws one
 * error with all that is missing or forbidden: by its field in `fields`, else in the machine. It is PERMISSION_DENIED for paths and
 * bridges of the host, which a tenant's machine has only from the administrator (`isPrivileged`), else FAILED_PRECONDITION. A name
 * of other tenants is told as one that is missing.
 */
export function resolveBackends(
  machine: Machine,
  tenant: string | undefined,
  catalogue: Catalogue,
  { fields = new Map(), isPrivileged = !tenant }: LookupOptions = {},
): Readonly<Record<string, Backend | NetworkDisk>> {
  const look = new Lookup({ machine, tenant, catalogue, fields, isPrivileged })
  const backends: Record<string, Backend | NetworkDisk> = {}
  for (const [key, backend] of Object.entries(machine.backends)) {
    const found = look.backend(key, backend)
    if (found !== undefined) backends[key] = found
  }
  for (const field of ['kernel', 'initrd'] as const) {
    const name = machine.firmware[field]
    const entry =
      name === undefined
        ? undefined
        : look.entry('images', name, fields.get(FIRMWARE_KEYS[field]) ?? `firmware.${field}`)
    if (entry !== undefined) backends[FIRMWARE_KEYS[field]] = { kind: 'content', path: entry.path }
  }
  look.finish()
  return backends
}

/** The ids of the secrets that the machine's backends name, such as a screen's password, by the backends' keys. */
export function resolveSecrets(
  machine: Machine,
  tenant: string | undefined,
  catalogue: Catalogue,
  { fields = new Map(), isPrivileged = !tenant }: LookupOptions = {},
): Readonly<Record<string, string>> {
  const look = new Lookup({ machine, tenant, catalogue, fields, isPrivileged })
  const ids = Object.entries(machine.backends).flatMap(([key, { options }]) => {
    const { password } = options
    const entry =
      typeof password === 'string' ? look.entry('secrets', password, look.at(key, 'password')) : undefined
    return entry === undefined ? [] : [[key, entry.id] as const]
  })
  look.finish()
  return Object.fromEntries(ids)
}

interface LookupParts extends Required<LookupOptions> {
  readonly machine: Machine
  readonly tenant: string | undefined
  readonly catalogue: Catalogue
}

const MOST_FAULTS = 8

/** Looks up names, and collects what is wrong with them. */
class Lookup {
  readonly #parts: LookupParts
  readonly #faults: string[] = []
  /** The volumes of the machine, with the field of the first disk of each. */
  readonly #used = new Map<string, { readonly at: string; readonly isReadOnly: boolean }>()
  #isDenied = false

  constructor(parts: LookupParts) {
    this.#parts = parts
  }

  at(key: string, ...names: readonly string[]): string {
    const field = this.#parts.fields.get(key)
    if (field === undefined) return pathOf('backends', key, ...names)
    return [field, ...names].join('.')
  }

  /** Throws when something was wrong. */
  finish(): void {
    if (this.#faults.length === 0) return
    const more = this.#faults.length - MOST_FAULTS
    const text = this.#faults.slice(0, MOST_FAULTS).join('; ')
    const code = this.#isDenied ? 'PERMISSION_DENIED' : 'FAILED_PRECONDITION'
    throw new AgentError(code, more > 0 ? `${text}; and ${more} more` : text)
  }

  backend(key: string, backend: MachineBackend): Backend | NetworkDisk | undefined {
    const { kind, name = '', path } = backend
    if (path !== undefined && this.#isDeniedAt(this.at(key, 'path'))) return undefined
    switch (kind) {
      case 'volume':
        return this.#volume(key, name, backend)
      case 'file':
        return path === undefined || this.#isDeniedAt(this.at(key)) ? undefined : fileOf(backend, { path })
      case 'network':
        return this.#network(key, name)
      case 'bridge':
        return this.#isDeniedAt(this.at(key, 'source')) ? undefined : this.#tap(key, { bridge: name })
      case 'tap':
        return this.#isDeniedAt(this.at(key, 'source')) ? undefined : this.#tap(key, { interface: name })
      case 'folder':
        return this.#folder(key, name, backend)
      case 'console':
        return { kind: 'console' }
      case 'vsock':
        return { kind: 'vsock-daemon' }
      case 'spice':
      case 'vnc': {
        const { listen, password } = backend.options
        if (typeof password === 'string') this.entry('secrets', password, this.at(key, 'password'))
        if (typeof listen === 'string') this.entry('networks', listen, this.at(key, 'listen'))
        return undefined
      }
      default:
        return undefined
    }
  }

  /** The entry if there is one for this tenant. Else the fault is kept. */
  entry<Of extends Table>(table: Of, name: string, at: string): Entry<Of> | undefined {
    const found = this.#find(table, name)
    if (found === undefined) this.#miss([table], name, at)
    return found
  }

  #find<Of extends Table>(table: Of, name: string): Entry<Of> | undefined {
    const { catalogue, tenant } = this.#parts
    const entries = (catalogue as Entries)[table]
    const found = Object.hasOwn(entries, name) ? entries[name] : undefined
    return found !== undefined && isFor(found, tenant) ? found : undefined
  }

  #miss(tables: readonly Table[], name: string, at: string): void {
    const { catalogue, tenant } = this.#parts
    const known = tables.flatMap((table) =>
      Object.entries(catalogue[table]).flatMap(([each, entry]) => (isFor(entry, tenant) ? [each] : [])),
    )
    const whose = tenant ? ` for tenant ${tenant}` : ''
    const all = known.length === 0 ? 'which has none' : `want ${known.slice(0, 16).join(', ')}`
    this.#faults.push(
      `${at}: ${WHAT[tables[0] ?? 'volumes']} ${shown(name)}: not in the catalogue${whose}${didYouMean(name, known, all)}`,
    )
  }

  #isDeniedAt(at: string): boolean {
    if (this.#parts.isPrivileged) return false
    this.#isDenied = true
    this.#faults.push(`${at}: is the host's, want a name of the catalogue`)
    return true
  }

  #volume(key: string, name: string, backend: MachineBackend): FileBackend | NetworkDisk | undefined {
    const { format: wanted, io, optional, readOnly = false } = backend.options
    const at = this.at(key, 'source')
    const volume = this.#find('volumes', name)
    const entry = volume ?? this.#find('images', name)
    if (entry === undefined) {
      // An optional drive is empty without its volume.
      if (optional !== true) this.#miss(['volumes', 'images'], name, at)
      return undefined
    }
    const isReadOnly =
      volume === undefined || volume.read_only === true || volume.url?.startsWith('https:') === true
    if (isReadOnly && readOnly !== true) {
      this.#faults.push(`${this.at(key, 'readonly')}: ${shown(name)} is read-only, want true`)
      return undefined
    }
    const { format = 'raw' } = entry
    if (wanted !== undefined && wanted !== format) {
      this.#faults.push(`${this.at(key, 'format')}: ${wanted}: ${shown(name)} is ${format}`)
      return undefined
    }
    if (volume?.url !== undefined && io !== undefined)
      this.#faults.push(`${this.at(key, 'io')}: ${io}: of a file only, and ${shown(name)} has a server`)
    const other = this.#used.get(name)
    if (other !== undefined && !(other.isReadOnly && readOnly === true))
      this.#faults.push(`${at}: ${shown(name)}: already that of ${other.at}`)
    this.#used.set(name, other ?? { at, isReadOnly: readOnly === true })
    const key_ = volume?.secret
    const secret = key_ === undefined ? undefined : this.#parts.catalogue.secrets[key_]?.id
    if (volume?.url !== undefined) {
      const { ca, limits, tls_name: name, url, username } = volume
      const login = username !== undefined && secret !== undefined ? { username, secret } : undefined
      const tls = ca && { ca, ...(name && { name }), ...(secret && { secret }) }
      const access = readOnly === true ? 'read-only' : 'read-write'
      const from = {
        kind: 'network-disk',
        url,
        access,
        ...(login && { login }),
        ...(tls && { tls }),
      } as const
      return { ...from, ...optionsOf(backend, limits) }
    }
    if (entry.path === undefined) throw new AgentError('INTERNAL', `${at}: want a checked catalogue`)
    return fileOf(backend, {
      path: entry.path,
      format,
      ...(volume?.limits && { limits: volume.limits }),
      ...(secret !== undefined && { secret }),
    })
  }

  #network(key: string, name: string): Backend | undefined {
    const entry = this.entry('networks', name, this.at(key, 'source'))
    if (entry === undefined) return undefined
    return entry.passt === true ? { kind: 'passt' } : this.#tap(key, entry)
  }

  #tap(
    key: string,
    {
      bridge,
      interface: own,
    }: { readonly bridge?: string | undefined; readonly interface?: string | undefined },
  ): Backend {
    const { machine, tenant = '' } = this.#parts
    return { kind: 'tap', interfaceName: own ?? tapName(`${tenant}/${machine.uuid}/${key}`), bridge }
  }

  #folder(key: string, name: string, { options }: MachineBackend): Backend | undefined {
    const entry = this.entry('folders', name, this.at(key, 'source'))
    if (entry === undefined) return undefined
    const { machine, tenant = '' } = this.#parts
    const isNinth = Object.values(machine.devices).some(
      ({ backend, model }) => backend === key && model === 'virtio-9p',
    )
    const readOnly = entry.read_only === true || options.readOnly === true
    // QEMU serves 9p itself and is root for that, so a tenant has it only where nothing else will do.
    if (isNinth && (readOnly || tenant === '')) return { kind: 'folder', path: entry.path, readOnly }
    if (isNinth) {
      this.#faults.push(`${this.at(key, 'type')}: 9p: only for folders that are read-only, want virtio-fs`)
      return undefined
    }
    if (!readOnly) return { kind: 'virtiofsd', path: entry.path }
    this.#faults.push(
      `${this.at(key, 'type')}: virtio-fs: ${shown(name)} is read-only, which only 9p can keep`,
    )
    return undefined
  }
}

const WHAT: Readonly<Record<Table, string>> = {
  volumes: 'volume',
  images: 'image',
  networks: 'network',
  folders: 'folder',
  secrets: 'secret',
  cpu_pools: 'CPU pool',
}

function isFor(
  { tenants = [] }: { readonly tenants?: readonly string[] | undefined },
  tenant: string | undefined,
): boolean {
  return !tenant || tenants.includes(tenant)
}

interface FilePlace {
  readonly path: string
  readonly format?: 'raw' | 'qcow2'
  readonly limits?: Entry<'volumes'>['limits']
  readonly secret?: string
}

/** The options have been read by the shape of `storage`. */
function fileOf({ options }: MachineBackend, { format, limits, path, secret }: FilePlace): FileBackend {
  const { format: wanted, readOnly } = options
  return {
    ...{ kind: 'file', path, access: readOnly === true ? 'read-only' : 'read-write' },
    format: format ?? (wanted === 'qcow2' ? 'qcow2' : 'raw'),
    ...optionsOf({ options }, limits),
    ...(secret !== undefined && { encryption: { secret } }),
  }
}

function optionsOf(
  { options }: Pick<MachineBackend, 'options'>,
  limits: FilePlace['limits'],
): Pick<FileBackend, 'cache' | 'io' | 'limits'> {
  const { bytesPerSecond, cache, io, iopsTotal } = options
  const own = {
    ...least('iopsTotal', iopsTotal, limits?.iops),
    ...least('bytesPerSecond', bytesPerSecond, limits?.bytes_per_second),
  }
  return {
    ...(typeof cache === 'string' && { cache: cache as FileBackend['cache'] }),
    ...(typeof io === 'string' && { io: io as FileBackend['io'] }),
    ...(Object.keys(own).length > 0 && { limits: own }),
  }
}

function least(name: string, wished: unknown, most: number | undefined): Readonly<Record<string, number>> {
  const numbers = [wished, most].filter((each) => typeof each === 'number')
  return numbers.length === 0 ? {} : { [name]: Math.min(...numbers) }
}

/** An interface of the host has at most 15 characters. */
function tapName(of: string): string {
  return `mv${createHash('sha256').update(of).digest('hex').slice(0, 12)}`
}
