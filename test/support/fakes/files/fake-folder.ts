import { bytesOf } from '../../../../src/base/stored-bytes.ts'
import { kernelError } from '../../../../src/os/errors.ts'
import type { FileStatus } from '../../../../src/os/files/file-status.ts'
import type { Files, ScratchFolder } from '../../../../src/os/files/files.ts'
import type { FileAttributes, Folder, GrowingFile, NewFile } from '../../../../src/os/files/folder.ts'

export interface FakeTree extends Files {
  openFolders: number
  chownLink(path: string, uid: number, gid: number): Promise<void>
  setModified(path: string, modifiedNs: bigint): void
  openFolder(path: string): Promise<FakeFolder>
}

export class FakeFolder implements Folder, ScratchFolder {
  readonly #files: FakeTree
  readonly #path: string

  constructor(files: FakeTree, path: string) {
    this.#files = files
    this.#path = path
    files.openFolders += 1
  }

  async names(atMost: number): Promise<readonly string[]> {
    return (await this.#files.list(this.#path)).slice(0, atMost)
  }

  async status(name: string): Promise<FileStatus | undefined> {
    return this.#files.lstat(this.#place('lstat', name))
  }

  async open(name: string): Promise<FakeFolder> {
    return this.#files.openFolder(this.#place('open', name))
  }

  async openBelow(path: string): Promise<Folder> {
    const names = path.split('/')
    let place = this.#path
    for (const [index, name] of names.entries()) {
      place = `${place}/${name}`
      if (name === '..') throw kernelError('open', place, 'EXDEV')
      const isLink = (await this.#files.lstat(place))?.kind === 'symlink'
      if (isLink && index < names.length - 1) throw kernelError('open', place, 'ELOOP')
    }
    return this.#files.openFolder(place)
  }

  async read(name: string, maxBytes: number): Promise<{ data: Uint8Array; status: FileStatus }> {
    const { path } = await this.#file('read', name)
    const data = (await this.#files.readBytes(path)).subarray(0, maxBytes)
    return { data: Buffer.from(data), status: (await this.#file('read', name)).status }
  }

  async readText(name: string, maxBytes: number): Promise<string> {
    return this.#files.readText((await this.#file('read', name)).path, maxBytes)
  }

  async removeFile(name: string): Promise<void> {
    await this.#files.removeFile(this.#place('unlink', name))
  }

  async readLink(name: string): Promise<string> {
    return this.#files.readLink(this.#place('readlink', name))
  }

  async makeFolder(name: string, mode: number): Promise<void> {
    await this.#files.makeDirectory(this.#place('mkdir', name), mode)
  }

  async create(name: string, data: Uint8Array, file: NewFile): Promise<void> {
    const path = this.#place('create', name)
    if ((await this.#files.lstat(path)) !== undefined) throw kernelError('create', path, 'EEXIST')
    await this.#fill(path, data, file)
  }

  async rewrite(name: string, data: Uint8Array, file: NewFile): Promise<void> {
    await this.#fill((await this.#file('write', name)).path, data, file)
  }

  async createFile(name: string): Promise<GrowingFile> {
    const path = this.#place('create', name)
    if ((await this.#files.lstat(path)) !== undefined) throw kernelError('create', path, 'EEXIST')
    await this.#files.write(path, '', { mode: 0o600 })
    return this.#growing(path)
  }

  async reopenFile(name: string, inode: bigint): Promise<GrowingFile> {
    const { path, status } = await this.#file('open', name)
    if (status.inode !== inode) throw kernelError('open', path, 'ESTALE')
    return this.#growing(path)
  }

  async #growing(path: string): Promise<GrowingFile> {
    this.#files.openFolders += 1
    return {
      inode: (await this.#files.lstat(path))?.inode ?? 0n,
      write: async (given, offset) => {
        const data = bytesOf(given)
        const before = Buffer.from(await this.#files.readBytes(path))
        const after = Buffer.alloc(Math.max(before.length, offset + data.length))
        before.copy(after)
        after.set(data, offset)
        await this.#files.write(path, after)
      },
      setAttributes: async ({ mode, uid, gid }) => {
        await this.#files.chown(path, uid, gid)
        await this.#files.chmod(path, mode)
      },
      close: async () => {
        this.#files.openFolders -= 1
      },
    }
  }

  async symlink(target: string | Uint8Array, name: string): Promise<void> {
    await this.#files.symlink(Buffer.from(target).toString(), this.#place('symlink', name))
  }

  async move(name: string, to: Folder, as = name): Promise<void> {
    const [from, target] = [this.#place('rename', name), to instanceof FakeFolder ? to : undefined]
    if (target === undefined) throw kernelError('rename', from, 'EXDEV')
    const path = target.#place('rename', as)
    const [old, moved] = [await this.#files.lstat(path), await this.status(name)]
    if (old?.kind === 'directory') {
      if (moved?.kind !== 'directory') throw kernelError('rename', path, 'EISDIR')
      if ((await this.#files.list(path)).length > 0) throw kernelError('rename', path, 'ENOTEMPTY')
    } else if (old !== undefined && moved?.kind === 'directory') {
      throw kernelError('rename', path, 'ENOTDIR')
    }
    await this.#files.rename(from, path)
  }

  async remove(name: string): Promise<void> {
    await this.#files.removeTree(this.#place('remove', name))
  }

  async removeFolder(name: string): Promise<void> {
    await this.#files.removeDirectory(this.#place('rmdir', name))
  }

  async setOwner(name: string, uid: number, gid: number): Promise<void> {
    await this.#files.chownLink(this.#place('chown', name), uid, gid)
  }

  async setAttributes({ mode, uid, gid }: FileAttributes): Promise<void> {
    await this.#files.chown(this.#path, uid, gid)
    await this.#files.chmod(this.#path, mode)
  }

  async close(): Promise<void> {
    this.#files.openFolders -= 1
  }

  async #fill(path: string, data: Uint8Array, { mode, uid, gid, modifiedNs }: NewFile): Promise<void> {
    await this.#files.write(path, data)
    await this.#files.chown(path, uid, gid)
    await this.#files.chmod(path, mode)
    this.#files.setModified(path, modifiedNs)
  }

  async #file(call: string, name: string): Promise<{ path: string; status: FileStatus }> {
    const path = this.#place(call, name)
    const status = await this.#files.lstat(path)
    if (status === undefined) throw kernelError(call, path, 'ENOENT')
    if (status.kind !== 'file') throw kernelError(call, path, 'EINVAL')
    return { path, status }
  }

  #place(call: string, name: string): string {
    const path = `${this.#path}/${name}`
    if (name === '' || name === '.' || name === '..' || /[/\0]/.test(name)) {
      throw kernelError(call, path, 'EINVAL')
    }
    return path
  }
}
