import { dirname, join } from 'node:path/posix'
import type { AgentError } from '../../../../src/base/errors.ts'
import { isWithin } from '../../../../src/base/paths.ts'
import { kernelError, tooLong } from '../../../../src/os/errors.ts'
import type { FileKind, FileStatus } from '../../../../src/os/files/file-status.ts'
import { MAX_READ_BYTES } from '../../../../src/os/files/files.ts'
import { FakeFolder, type FakeTree } from './fake-folder.ts'
import type { FakeMounts } from './fake-mounts.ts'

interface Node {
  readonly kind: FileKind
  mode: number
  uid: number
  gid: number
  data: Buffer
  readonly target: string
  readonly inode: bigint
  modifiedNs: bigint
  changedNs: bigint
  readonly major: number
  readonly minor: number
}

/** An in-memory tree of files, by absolute path. Follows links where the kernel does. */
export class FakeFiles implements FakeTree {
  readonly #nodes = new Map<string, Node>()
  readonly #mounts: FakeMounts
  openFolders = 0
  #lastInode = 1n
  /** The time of the last change; every change has a different time. */
  #now = 1_000_000_000n
  /** Plays the kernel's reaction to a write; when it throws, the write fails. */
  onWrite: (path: string, data: string) => void | Promise<void> = () => {}

  constructor(mounts: FakeMounts) {
    this.#mounts = mounts
    mounts.hasLink = (path) => this.#nodes.get(path)?.kind === 'symlink' || this.#follow(path) !== path
    this.#nodes.set('/', this.#node('directory', 0o755))
  }

  async makeSpecial(
    path: string,
    special: { readonly kind: FileKind; readonly major?: number; readonly minor?: number },
  ): Promise<void> {
    await this.makeDirectories(dirname(path))
    this.#nodes.set(path, {
      ...this.#node(special.kind, 0o600),
      major: special.major ?? 0,
      minor: special.minor ?? 0,
    })
  }

  async put(path: string, data: string): Promise<void> {
    await this.makeDirectories(dirname(path))
    await this.write(path, data)
  }

  has(path: string): boolean {
    return this.#nodes.has(this.#follow(path))
  }

  async readText(path: string, maxBytes?: number): Promise<string> {
    return Buffer.from(await this.readBytes(path, maxBytes)).toString('utf8')
  }

  async readSmall(paths: readonly string[]): Promise<readonly string[]> {
    return Promise.all(paths.map((path) => this.readText(path, 4096).catch(() => '')))
  }

  async readTail(path: string, maxBytes: number): Promise<string> {
    return Buffer.from(await this.readBytes(path))
      .subarray(-maxBytes)
      .toString('utf8')
  }

  async readBytes(path: string, maxBytes = MAX_READ_BYTES): Promise<Uint8Array> {
    const node = this.#existing('read', path)
    if (node.kind === 'directory') throw kernelError('read', path, 'EISDIR')
    if (node.data.length > maxBytes) throw tooLong(path, maxBytes)
    return node.data
  }

  async readHead(path: string, maxBytes: number): Promise<Uint8Array> {
    if (this.#follow(path) !== join('/', path)) throw kernelError('open', path, 'ELOOP')
    const node = this.#existing('open', path)
    if (node.kind !== 'file') throw kernelError('read', path, node.kind === 'directory' ? 'EISDIR' : 'EINVAL')
    return node.data.subarray(0, maxBytes)
  }

  async write(path: string, data: string | Uint8Array, { mode = 0o644 } = {}): Promise<void> {
    const place = this.#follow(path)
    const node = this.#nodes.get(place) ?? this.#create('write', place, this.#node('file', mode))
    if (node.kind === 'directory') throw kernelError('write', path, 'EISDIR')
    const before = node.data
    node.data = Buffer.from(data)
    node.modifiedNs = this.#tick()
    node.changedNs = node.modifiedNs
    try {
      await this.onWrite(place, node.data.toString())
    } catch (error) {
      node.data = before
      throw error
    }
  }

  async exists(path: string): Promise<boolean> {
    return (await this.stat(path)) !== undefined
  }

  async replace(path: string, data: string, mode: number): Promise<void> {
    await this.write(`${path}.new`, data, { mode })
    await this.rename(`${path}.new`, path)
  }

  async makeDirectories(path: string, mode = 0o777): Promise<void> {
    const place = this.#follow(path)
    const kind = this.#nodes.get(place)?.kind
    if (kind === 'directory') return
    if (kind !== undefined) throw kernelError('mkdir', path, 'EEXIST')
    await this.makeDirectories(dirname(place), mode)
    // A concurrent call may have made it.
    if (!this.#nodes.has(place)) this.#create('mkdir', place, this.#node('directory', mode))
  }

  async makeDirectory(path: string, mode = 0o777): Promise<void> {
    this.#create('mkdir', this.#place(path), this.#node('directory', mode))
  }

  async removeFile(path: string): Promise<void> {
    const place = this.#removable('unlink', path)
    if (this.#nodes.get(place)?.kind === 'directory') throw kernelError('unlink', path, 'EISDIR')
    this.#nodes.delete(place)
  }

  async removeDirectory(path: string): Promise<void> {
    const place = this.#removable('rmdir', path)
    if (this.#nodes.get(place)?.kind !== 'directory') throw kernelError('rmdir', path, 'ENOTDIR')
    const below = this.#below(place)
    if (isWithin(place, '/sys/fs/cgroup')) {
      // The kernel removes a cgroup's files with it.
      const hasCgroups = below.some((each) => this.#nodes.get(each)?.kind === 'directory')
      if (hasCgroups) throw kernelError('rmdir', path, 'EBUSY')
      for (const each of below) this.#nodes.delete(each)
    } else if (below.length > 0) throw kernelError('rmdir', path, 'ENOTEMPTY')
    this.#nodes.delete(place)
  }

  async removeDirectories(paths: readonly string[]): Promise<ReadonlyMap<string, AgentError>> {
    const failures = new Map<string, AgentError>()
    for (const path of paths) {
      await this.removeDirectory(path).catch((error: AgentError) => failures.set(path, error))
    }
    return failures
  }

  async removeTree(path: string): Promise<void> {
    const place = this.#place(path)
    const doomed = [...this.#below(place), place].filter((each) => this.#nodes.has(each))
    const mounted = doomed.find((each) => this.#mounts.isMountPoint(each))
    if (mounted !== undefined) throw kernelError('remove', mounted, 'EXDEV')
    for (const each of doomed) this.#nodes.delete(each)
  }

  async lstat(path: string): Promise<FileStatus | undefined> {
    return this.#statusAt(this.#place(path))
  }

  async stat(path: string): Promise<FileStatus | undefined> {
    return this.#statusAt(this.#follow(path))
  }

  async list(path: string): Promise<readonly string[]> {
    const place = this.#follow(path)
    const node = this.#nodes.get(place)
    if (node !== undefined && node.kind !== 'directory') throw kernelError('list', path, 'ENOTDIR')
    const children = this.#below(place).filter((each) => dirname(each) === place)
    return children.map((each) => each.slice(each.lastIndexOf('/') + 1)).sort()
  }

  async *names(path: string): AsyncIterable<string> {
    yield* await this.list(path)
  }

  async listFolders(path: string): Promise<readonly string[]> {
    const names = await this.list(path)
    const place = this.#follow(path)
    return names.filter(
      (name) => this.#nodes.get(`${place === '/' ? '' : place}/${name}`)?.kind === 'directory',
    )
  }

  async isReachedWithoutLinks(path: string): Promise<boolean> {
    return this.#nodes.has(path) && this.#nodes.get(path)?.kind !== 'symlink' && this.#follow(path) === path
  }

  async isBlockNodeOf(node: string, device: string): Promise<boolean> {
    const status = await this.stat(node)
    const numbers = `${device}/dev`
    if (status?.kind !== 'block' || !this.has(numbers)) return false
    return (await this.readText(numbers)).trim() === `${status.major}:${status.minor}`
  }

  async readLink(path: string): Promise<string> {
    const node = this.#nodes.get(this.#place(path))
    if (node === undefined) throw kernelError('readlink', path, 'ENOENT')
    if (node.kind !== 'symlink') throw kernelError('readlink', path, 'EINVAL')
    return node.target
  }

  async symlink(target: string, path: string): Promise<void> {
    this.#create('symlink', this.#place(path), { ...this.#node('symlink', 0o777), target })
  }

  async rename(from: string, to: string): Promise<void> {
    const [source, target] = [this.#removable('rename', from), this.#place(to)]
    for (const each of [...this.#below(source), source]) {
      const node = this.#nodes.get(each)
      this.#nodes.delete(each)
      if (node === undefined) continue
      this.#nodes.set(target + each.slice(source.length), node)
      if (each === source) node.changedNs = this.#tick()
    }
  }

  async chmod(path: string, mode: number): Promise<void> {
    Object.assign(this.#existing('chmod', path), { mode: mode & 0o7777, changedNs: this.#tick() })
  }

  async chown(path: string, uid: number, gid: number): Promise<void> {
    Object.assign(this.#existing('chown', path), { uid, gid, changedNs: this.#tick() })
  }

  async chownLink(path: string, uid: number, gid: number): Promise<void> {
    const node = this.#nodes.get(this.#place(path))
    if (node === undefined) throw kernelError('chown', path, 'ENOENT')
    Object.assign(node, { uid, gid, changedNs: this.#tick() })
  }

  async openFolder(path: string): Promise<FakeFolder> {
    const place = this.#place(path)
    const node = this.#nodes.get(place)
    if (node === undefined) throw kernelError('open', path, 'ENOENT')
    if (node.kind !== 'directory') throw kernelError('open', path, 'ENOTDIR')
    return new FakeFolder(this, place)
  }

  setModified(path: string, modifiedNs: bigint): void {
    this.#existing('utimes', path).modifiedNs = modifiedNs
  }

  #tick(): bigint {
    this.#now += 1000n
    return this.#now
  }

  #node(kind: FileKind, mode: number): Node {
    this.#lastInode += 1n
    const inode = this.#lastInode
    const [modifiedNs, data] = [this.#tick(), Buffer.alloc(0)]
    const times = { modifiedNs, changedNs: modifiedNs }
    return { kind, mode, uid: 0, gid: 0, data, target: '', inode, ...times, major: 0, minor: 0 }
  }

  #create(call: string, place: string, node: Node): Node {
    if (this.#nodes.has(place)) throw kernelError(call, place, 'EEXIST')
    const parent = this.#nodes.get(dirname(place))
    if (parent === undefined) throw kernelError(call, place, 'ENOENT')
    if (parent.kind !== 'directory') throw kernelError(call, place, 'ENOTDIR')
    this.#nodes.set(place, node)
    return node
  }

  #existing(call: string, path: string): Node {
    const node = this.#nodes.get(this.#follow(path))
    if (node === undefined) throw kernelError(call, path, 'ENOENT')
    return node
  }

  #removable(call: string, path: string): string {
    const place = this.#place(path)
    if (!this.#nodes.has(place)) throw kernelError(call, path, 'ENOENT')
    if (this.#mounts.isMountPoint(place)) throw kernelError(call, path, 'EBUSY')
    return place
  }

  #place(path: string): string {
    const normal = join('/', path).replace(/(?<=.)\/$/, '')
    return normal === '/'
      ? '/'
      : join(this.#follow(dirname(normal)), normal.slice(normal.lastIndexOf('/') + 1))
  }

  #follow(path: string, depth = 0): string {
    const place = this.#place(path)
    const node = this.#nodes.get(place)
    if (node?.kind !== 'symlink') return this.#shownAt(place)
    if (depth === 40) throw kernelError('resolve', path, 'ELOOP')
    const target = node.target.startsWith('/') ? node.target : join(dirname(place), node.target)
    return this.#follow(target, depth + 1)
  }

  /** The file that a bind mount shows at this path, or the path's own. */
  #shownAt(place: string): string {
    const { source = place, options = '' } =
      this.#mounts.entries.findLast(({ mountPoint }) => mountPoint === place) ?? {}
    const isFile = options.split(',').includes('bind') && this.#nodes.get(source)?.kind === 'file'
    return isFile ? source : place
  }

  #statusAt(place: string): FileStatus | undefined {
    const node = this.#nodes.get(place)
    if (node === undefined) return undefined
    const { data, target: _, ...status } = node
    const folders = [...this.#nodes].filter(
      ([path, { kind }]) => kind === 'directory' && path !== '/' && dirname(path) === place,
    )
    const links = node.kind === 'directory' ? 2 + folders.length : 1
    const mount = this.#mounts.entries.findLastIndex(({ mountPoint }) => isWithin(place, mountPoint))
    return { ...status, device: BigInt(mount + 2), sizeBytes: BigInt(data.length), links }
  }

  #below(place: string): string[] {
    const prefix = place === '/' ? '/' : `${place}/`
    return [...this.#nodes.keys()].filter((each) => each !== place && each.startsWith(prefix)).reverse()
  }
}
