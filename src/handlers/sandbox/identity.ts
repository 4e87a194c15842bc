import { basename, dirname } from 'node:path/posix'
import { AgentError } from '../../base/errors.ts'
import { UndoList } from '../../base/undo.ts'
import type { Before } from '../../gen/state/names.ts'
import type { Files } from '../../os/files/files.ts'
import type { Folder } from '../../os/files/folder.ts'
import type { Container, ContainerParts } from '../container/container.ts'
import type { SandboxContext } from './context.ts'
import { mountedResolvConf, removeStaleResolvConf, setResolvConf } from './resolv-conf.ts'
import type { Sandbox } from './sandbox-state.ts'

/** The longest host name that Linux holds (man 2 sethostname). */
const HOSTNAME_BYTES = 64

/** The longest file that an identity changes, and the longest content that it gets. */
const MAX_FILE_BYTES = 65_536

/** How the sandbox and its containers are to call themselves. An empty field changes nothing. */
export interface Identity {
  readonly hostname: string
  /** Lines of resolv.conf. */
  readonly dns: readonly string[]
  readonly hosts: string
  /** What one container has of its own. */
  readonly ofContainer: (container: Container) => { readonly hostname: string; readonly hosts: string }
}

/** Host names and files that are to change, found before the first of them is. */
export interface IdentityChange {
  /** With the key of the container that has its own; empty: the sandbox's. */
  readonly hostnames: readonly { readonly key: string; readonly namespace: string; readonly name: string }[]
  /** By path. Containers have these files mounted, so each keeps its inode. */
  readonly files: ReadonlyMap<string, string>
  readonly dns: readonly string[]
}

/** Throws INVALID_ARGUMENT, naming the field, for a host name that the kernel cannot hold: it accepts every byte but NUL. */
export function checkHostname(field: string, hostname: string): void {
  const bytes = Buffer.byteLength(hostname)
  if (bytes > HOSTNAME_BYTES) {
    throw new AgentError('INVALID_ARGUMENT', `${field}: ${bytes} bytes long, want at most ${HOSTNAME_BYTES}`)
  }
  if (hostname.includes('\0')) throw new AgentError('INVALID_ARGUMENT', `${field}: contains a NUL byte`)
}

/** Throws INVALID_ARGUMENT for a content that is too long. */
export function checkContent(field: string, content: string): void {
  const bytes = Buffer.byteLength(content)
  if (bytes > MAX_FILE_BYTES) {
    throw new AgentError('INVALID_ARGUMENT', `${field}: ${bytes} bytes long, want at most ${MAX_FILE_BYTES}`)
  }
}

/** Throws FAILED_PRECONDITION, naming the container, for a host name that it cannot have. */
export function plannedChange(
  { containers }: Pick<SandboxContext, 'containers'>,
  sandbox: Sandbox,
  identity: Identity,
): IdentityChange {
  const { uts } = sandbox.namespaces
  const hostnames: { key: string; namespace: string; name: string }[] = []
  if (identity.hostname !== '' && uts !== undefined)
    hostnames.push({ key: '', namespace: uts, name: identity.hostname })
  const files = new Map<string, string>()
  const resolvConf = identity.dns.join('\n')
  for (const container of containers.list()) {
    if (!('parts' in container.state)) continue
    const { parts } = container.state
    const own = identity.ofContainer(container)
    if (own.hostname !== '') hostnames.push(ownHostname(container, parts, own.hostname))
    const hostname = own.hostname || (joinsUts(parts, uts) ? identity.hostname : '')
    const contents = {
      '/etc/hosts': own.hosts || identity.hosts,
      '/etc/resolv.conf': resolvConf,
      '/etc/hostname': hostname === '' ? '' : `${hostname}\n`,
    }
    for (const { destination, source } of parts.spec.current.Mounts) {
      const content = contents[destination as keyof typeof contents] ?? ''
      if (content === '' || !source.startsWith('/')) continue
      if ((files.get(source) ?? content) !== content) {
        const text = `container '${container.id}': shares ${source} with another one, which gets another content`
        throw new AgentError('FAILED_PRECONDITION', text)
      }
      files.set(source, content)
    }
  }
  return { hostnames, files, dns: identity.dns }
}

function joinsUts({ spec }: ContainerParts, uts: string | undefined): boolean {
  return spec.current.Linux.Namespaces.some(({ Type, Path }) => Type === 'uts' && Path === uts)
}

function ownHostname({ id, record }: Container, { spec, init }: ContainerParts, name: string) {
  const isOwn = spec.current.Linux.Namespaces.some(({ Type, Path }) => Type === 'uts' && Path === '')
  const refused = !isOwn ? 'has no UTS namespace of its own' : init.status === undefined ? '' : 'has ended'
  if (refused !== '') throw new AgentError('FAILED_PRECONDITION', `container '${id}': ${refused}`)
  return { key: record.key, namespace: utsOf(init.pid), name }
}

function utsOf(pid: number): string {
  return `/proc/${pid}/ns/uts`
}

export function changesNothing({ hostnames, files, dns }: IdentityChange): boolean {
  return hostnames.length === 0 && files.size === 0 && dns.length === 0
}

/** What the change is about to replace. Throws FAILED_PRECONDITION for a file that is too long, or the kernel's error. */
export async function readBefore(
  { os, config }: Pick<SandboxContext, 'os' | 'config'>,
  { hostnames, files, dns }: IdentityChange,
): Promise<Before> {
  const before: Before = { hostnames: [], files: [], mountsResolvConf: false }
  for (const { key, namespace } of hostnames)
    before.hostnames.push({ key, name: await os.mounts.hostnameIn(namespace) })
  const resolvConf = dns.length > 0 ? await mountedResolvConf(os, config.sharedRoot) : undefined
  before.mountsResolvConf = dns.length > 0 && resolvConf === undefined
  const paths = new Set([...files.keys(), ...(resolvConf === undefined ? [] : [resolvConf])])
  for (const path of paths) before.files.push({ path, content: await readWhole(os.files, path) })
  return before
}

/** Throws at the first step that fails; {@link bringBack} undoes those before it. */
export async function applyChange(
  context: Pick<SandboxContext, 'os' | 'config' | 'log' | 'events'>,
  { hostnames, files, dns }: IdentityChange,
): Promise<void> {
  const { os, config, log } = context
  for (const { namespace, name } of hostnames) await os.mounts.hostnameIn(namespace, name)
  for (const [path, content] of files) await rewrite(context, path, Buffer.from(content))
  if (dns.length === 0) return
  const path = await mountedResolvConf(os, config.sharedRoot)
  // DestroySandbox unmounts it by what it is.
  if (path === undefined) await setResolvConf(os, config.sharedRoot, dns, new UndoList(log))
  else if (!files.has(path)) await rewrite(context, path, Buffer.from(dns.join('\n')))
}

/** Tries to bring each thing back, also after the death of the agent that had changed it. Logs what cannot be. */
export async function bringBack(
  context: Pick<SandboxContext, 'os' | 'config' | 'log' | 'events' | 'containers'>,
  sandbox: Sandbox,
  before: Before,
): Promise<void> {
  const { os, config, log, containers } = context
  const undo = new UndoList(log)
  for (const { key, name } of before.hostnames) {
    const uts = key === '' ? sandbox.namespaces.uts : ownUtsOf(containers.list(), key)
    if (uts !== undefined) undo.add('hostname', async () => void (await os.mounts.hostnameIn(uts, name)))
  }
  for (const { path, content } of before.files) undo.add(path, () => rewrite(context, path, content))
  if (before.mountsResolvConf) undo.add('resolv.conf', () => removeStaleResolvConf(os, config.sharedRoot))
  await undo.run()
}

function ownUtsOf(containers: readonly Container[], key: string): string | undefined {
  const state = containers.find(({ record }) => record.key === key)?.state
  if (state === undefined || !('parts' in state) || state.parts.init.status !== undefined) return undefined
  return utsOf(state.parts.init.pid)
}

async function readWhole(files: Files, path: string): Promise<Buffer> {
  return inFolderOf(files, path, async (folder, name) => {
    const { data, status } = await folder.read(name, MAX_FILE_BYTES)
    if (status.sizeBytes <= BigInt(MAX_FILE_BYTES)) return Buffer.from(data)
    const text = `${path}: ${status.sizeBytes} bytes long, want at most ${MAX_FILE_BYTES}`
    throw new AgentError('FAILED_PRECONDITION', text)
  })
}

async function rewrite(
  { os: { files, clock }, events }: Pick<SandboxContext, 'os' | 'events'>,
  path: string,
  data: Uint8Array,
): Promise<void> {
  await inFolderOf(files, path, async (folder, name) => {
    const { status } = await folder.read(name, 0)
    await folder.rewrite(name, data, {
      ...status,
      modifiedNs: events.unixMsOf(clock.boottimeNs()) * 1_000_000n,
    })
  })
}

/** Follows no symbolic link on the way, because a container may have made it. */
async function inFolderOf<T>(
  files: Files,
  path: string,
  work: (folder: Folder, name: string) => Promise<T>,
): Promise<T> {
  const [top = '', ...below] = dirname(path).slice(1).split('/')
  const first = await files.openFolder(`/${top}`)
  try {
    const folder = below.length === 0 ? first : await first.openBelow(below.join('/'))
    try {
      return await work(folder, basename(path))
    } finally {
      if (folder !== first) await folder.close()
    }
  } finally {
    await first.close()
  }
}
