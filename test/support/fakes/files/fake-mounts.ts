import { kernelError } from '../../../../src/os/errors.ts'
import type { MountEntry, MountPlace, Mounts } from '../../../../src/os/files/mounts.ts'

type AnyMountRequest = Parameters<Mounts['mount']>[0]
type MountRequest = Omit<AnyMountRequest, 'refuseLinks'>
type FakeCall = 'mount' | 'unmount' | 'clone' | 'pin namespaces' | 'set hostname'

/** A mount table. Mounts do not hide files of `FakeFiles`, except a file bound over a file. */
export class FakeMounts implements Mounts {
  readonly entries: MountEntry[] = []
  /** Every successful mount(2), including remounts and propagation changes. */
  readonly requests: MountRequest[] = []
  readonly pathsOf = new Map<number, readonly string[]>()
  readonly clones: { readonly from: MountPlace; readonly to: MountPlace }[] = []
  /** The host name of each new uts namespace; empty where it kept the machine's name. */
  readonly hostnames: string[] = []
  /** By the path of the uts namespace. */
  readonly hostnameOf = new Map<string, string>()
  /** Returns the errno of failing calls for a target; undefined for success. */
  failWith: (call: FakeCall, target: string) => string | undefined = () => undefined
  hasLink: (path: string) => boolean = () => false
  #lastId = 20

  constructor() {
    this.#push({ source: 'root', target: '/', type: 'ext4', flags: [], data: '' })
  }

  async mount(request: AnyMountRequest): Promise<void> {
    const { refuseLinks = false, ...mount } = request
    this.#failIfAsked('mount', request.target)
    if (refuseLinks && this.hasLink(request.target)) throw kernelError('mount', request.target, 'ELOOP')
    this.requests.push(mount)
    const changesOnly = request.flags.some((flag) => CHANGES.has(flag))
    if (!changesOnly) this.#push(request)
  }

  async unmount(target: string): Promise<void> {
    this.#failIfAsked('unmount', target)
    const index = this.entries.findLastIndex(({ mountPoint }) => mountPoint === target)
    const entry = this.entries[index]
    if (entry === undefined) throw kernelError('unmount', target, 'EINVAL')
    if (this.entries.some(({ parentId }) => parentId === entry.id))
      throw kernelError('unmount', target, 'EBUSY')
    this.entries.splice(index, 1)
  }

  async clone(from: MountPlace, to: MountPlace): Promise<void> {
    this.#failIfAsked('clone', to.path)
    this.clones.push({ from, to })
  }

  async pinNamespaces({ ipc, uts, hostname }: Parameters<Mounts['pinNamespaces']>[0]): Promise<void> {
    this.hostnames.push(hostname)
    this.hostnameOf.set(uts, hostname)
    for (const target of [ipc, uts]) {
      this.#failIfAsked('pin namespaces', target)
      this.#push({ source: 'nsfs', target, type: 'nsfs', flags: [], data: '' })
    }
  }

  reach = async (_folder: string): Promise<void> => {}

  async hostnameIn(namespace: string, hostname = ''): Promise<string> {
    const before = this.hostnameOf.get(namespace) ?? ''
    if (hostname === '') return before
    this.#failIfAsked('set hostname', namespace)
    this.hostnameOf.set(namespace, hostname)
    return before
  }

  async list(): Promise<readonly MountEntry[]> {
    return [...this.entries]
  }

  async isMounted(pid: number, path: string): Promise<boolean> {
    const paths = this.pathsOf.get(pid)
    if (paths === undefined) throw kernelError('read', `/proc/${pid}/mountinfo`, 'ENOENT')
    return paths.includes(path)
  }

  isMountPoint(path: string): boolean {
    return this.entries.some(({ mountPoint }) => mountPoint === path)
  }

  #failIfAsked(call: FakeCall, target: string): void {
    const errno = this.failWith(call, target)
    if (errno !== undefined) throw kernelError(call, target, errno)
  }

  #push({ source, target, type, flags }: MountRequest): void {
    const parent = this.entries.findLast(({ mountPoint }) => isBelow(target, mountPoint))
    this.#lastId += 1
    this.entries.push({
      id: this.#lastId,
      parentId: parent?.id ?? 1,
      mountPoint: target,
      type: flags.includes('bind') ? (parent?.type ?? type) : type,
      source,
      options: [flags.includes('ro') ? 'ro' : 'rw', ...flags.filter((flag) => flag !== 'ro')].join(','),
      isReadOnly: flags.includes('ro') && !flags.includes('bind'),
      major: 0,
      minor: this.#lastId,
    })
  }
}

const CHANGES: ReadonlySet<string> = new Set(['remount', 'private', 'slave', 'shared', 'unbindable'])

function isBelow(path: string, folder: string): boolean {
  return path === folder || path.startsWith(folder === '/' ? '/' : `${folder}/`)
}
