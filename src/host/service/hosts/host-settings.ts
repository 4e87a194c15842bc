import { CONTROLLER, type CredentialFiles, HOST_ID } from '../../tls/credentials.ts'
import { type Endpoint, parseEndpoint } from '../../tls/endpoint.ts'

/** What the configuration says of this host among others. */
export interface HostSettings extends CredentialFiles {
  /** Common name, and a DNS name, of its certificate. */
  readonly id: string
  readonly listen: Endpoint
  /** As others reach it. */
  readonly advertise: Endpoint
  readonly controllers: readonly Endpoint[]
  /** Names that serve to choose a host for a machine. */
  readonly networks: readonly string[]
  /** Of storage that other hosts have, too. */
  readonly sharedFolders: readonly string[]
  /** Folders with files that machines of other hosts may have as disks, and the ids of these hosts. */
  readonly volumes: Readonly<Record<string, readonly string[]>>
}

const MOST_NAMES = 64
const NAME = /^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$/

type Fail = (text: string) => never
type ReadPath = (where: string, path: unknown) => string

/** Reads the table `host` of a configuration. */
export function hostSettings(
  fields: Readonly<Record<string, unknown>>,
  { fail, path }: { readonly fail: Fail; readonly path: ReadPath },
): HostSettings {
  const { id, networks = [], volumes = {}, controllers = [], advertise = fields.listen } = fields
  const shared = listOf('host.shared_folders', fields.shared_folders ?? [], fail)
  if (typeof id !== 'string' || !HOST_ID.test(id) || id === CONTROLLER)
    return fail(`host.id: ${JSON.stringify(id)}, want 1 to 63 of a-z, 0-9, . and -, and not "${CONTROLLER}"`)
  const endpoints = listOf('host.controllers', controllers, fail)
  return {
    id,
    listen: endpointOf('host.listen', fields.listen, fail),
    advertise: endpointOf('host.advertise', advertise, fail),
    controllers: endpoints.map((each) => endpointOf('host.controllers', each, fail)),
    ca: path('host.ca', fields.ca),
    cert: path('host.cert', fields.cert),
    key: path('host.key', fields.key),
    volumes: volumesOf(volumes, { fail, path }),
    sharedFolders: shared.map((folder) => path('host.shared_folders', folder).replace(/(?<=.)\/$/, '')),
    networks: listOf('host.networks', networks, fail).map((name) =>
      typeof name === 'string' && NAME.test(name)
        ? name
        : fail(`host.networks: ${JSON.stringify(name)}, want 1 to 63 of A-Z, a-z, 0-9, _ . -`),
    ),
  }
}

/** The names of the fields of the table. */
export const HOST_FIELDS = [
  'id',
  'listen',
  'advertise',
  'controllers',
  'ca',
  'cert',
  'key',
  'networks',
  'shared_folders',
  'volumes',
]

function volumesOf(
  value: unknown,
  { fail, path }: { readonly fail: Fail; readonly path: ReadPath },
): HostSettings['volumes'] {
  const where = 'host.volumes'
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    return fail(`${where}: want the ids of hosts by folder, such as { "/srv/disks" = ["b"] }`)
  const folders = listOf(where, Object.entries(value), fail) as [string, unknown][]
  const hostOf = (id: unknown) =>
    typeof id === 'string' && HOST_ID.test(id)
      ? id
      : fail(`${where}: ${JSON.stringify(id)}, want a host's id`)
  return Object.fromEntries(
    folders.map(([folder, hosts]) => [
      path(where, folder),
      listOf(`${where}: ${folder}`, hosts, fail).map(hostOf),
    ]),
  )
}

function listOf(where: string, value: unknown, fail: Fail): readonly unknown[] {
  if (Array.isArray(value) && value.length <= MOST_NAMES) return value
  return fail(`${where}: want a list of at most ${MOST_NAMES}`)
}

function endpointOf(where: string, value: unknown, fail: Fail): Endpoint {
  const endpoint = typeof value === 'string' ? parseEndpoint(value) : undefined
  return endpoint ?? fail(`${where}: ${JSON.stringify(value)}, want HOST:PORT, such as 192.0.2.1:7443`)
}
