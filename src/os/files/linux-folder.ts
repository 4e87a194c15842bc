import { constants } from 'node:fs'
import { errnoOf } from '../../base/errors.ts'
import { bytesOf, type StoredBytes } from '../../base/stored-bytes.ts'
import { checkErrno, failed, fromNodeError, kernelError } from '../errors.ts'
import type { Native } from '../native.ts'
import { O_PATH } from '../open-flags.ts'
import { type FileStatus, fileStatus } from './file-status.ts'
import type { FileAttributes, Folder, GrowingFile, NewFile } from './folder.ts'
import * as fs from './node-files.ts'
import { removeTree } from './remove-tree.ts'

const { O_CREAT, O_DIRECTORY, O_EXCL, O_NOFOLLOW, O_NONBLOCK, O_RDONLY, O_WRONLY } = constants

export async function openFolder(native: Native, path: string): Promise<Folder> {
  return openAt(native, path, path)
}

/** Error texts call the directory `path`. */
async function openAt(native: Native, place: string, path: string): Promise<Folder> {
  const handle = await fs.open(place, O_PATH | O_DIRECTORY | O_NOFOLLOW).catch(failed('open', path))
  return new LinuxFolder(native, handle, path)
}

type Handle = Pick<fs.FileHandle, 'fd' | 'close'>

/** Every call goes through /proc/self/fd, so that it starts at the open directory wherever its path leads now. */
class LinuxFolder implements Folder {
  readonly #native: Native
  readonly #handle: Handle
  readonly #path: string

  constructor(native: Native, handle: Handle, path: string) {
    this.#native = native
    this.#handle = handle
    this.#path = path
  }

  async names(atMost: number): Promise<readonly string[]> {
    const report = failed('list', this.#path)
    const names: string[] = []
    // No more entries than needed, because there may be millions.
    const bufferSize = Math.max(1, Math.min(atMost, 256))
    const directory = await fs.opendir(this.#itself, { bufferSize }).catch(report)
    try {
      while (names.length < atMost) {
        const entry = await directory.read().catch(report)
        if (entry === null) break
        if (!entry.name.includes('\ufffd')) names.push(entry.name)
      }
    } finally {
      await directory.close()
    }
    return names
  }

  async status(name: string): Promise<FileStatus | undefined> {
    try {
      return fileStatus(await fs.lstat(this.#place('lstat', name), { bigint: true }))
    } catch (error) {
      if (errnoOf(error) === 'ENOENT') return undefined
      throw fromNodeError('lstat', this.#named(name), error)
    }
  }

  async open(name: string): Promise<Folder> {
    return openAt(this.#native, this.#place('open', name), this.#named(name))
  }

  async openBelow(path: string): Promise<Folder> {
    const native = this.#native
    const fd = checkErrno('open', this.#named(path), await native.openBelow(this.#handle.fd, path))
    return new LinuxFolder(native, { fd, close: async () => void native.close(fd) }, this.#named(path))
  }

  async read(name: string, maxBytes: number): Promise<{ data: Uint8Array; status: FileStatus }> {
    return this.#onFile('read', name, O_RDONLY, async (file) => {
      const buffer = Buffer.alloc(maxBytes)
      let length = 0
      for (let more = true; more && length < maxBytes; ) {
        const { bytesRead } = await file.read(buffer, length, maxBytes - length, length)
        length += bytesRead
        more = bytesRead > 0
      }
      return { data: buffer.subarray(0, length), status: fileStatus(await file.stat({ bigint: true })) }
    })
  }

  async readLink(name: string): Promise<string> {
    return fs.readlink(this.#place('readlink', name)).catch(failed('readlink', this.#named(name)))
  }

  async makeFolder(name: string, mode: number): Promise<void> {
    await fs.mkdir(this.#place('mkdir', name), { mode }).catch(failed('mkdir', this.#named(name)))
  }

  async create(name: string, data: Uint8Array, file: NewFile): Promise<void> {
    const handle = await this.#create(name)
    try {
      await fill(handle, data, file).catch(failed('create', this.#named(name)))
    } finally {
      await handle.close()
    }
  }

  async createFile(name: string): Promise<GrowingFile> {
    return await this.#growing(name, await this.#create(name))
  }

  async reopenFile(name: string, inode: bigint): Promise<GrowingFile> {
    const growing = await this.#growing(name, await this.#open('open', name, O_WRONLY))
    if (growing.inode === inode) return growing
    await growing.close()
    throw kernelError('open', this.#named(name), 'ESTALE')
  }

  async #growing(name: string, handle: fs.FileHandle): Promise<GrowingFile> {
    const { ino } = await handle.stat({ bigint: true }).catch(async (error: unknown) => {
      await handle.close()
      throw fromNodeError('stat', this.#named(name), error)
    })
    return {
      inode: ino,
      write: (data, offset) => this.#write(handle, data, offset).catch(failed('write', this.#named(name))),
      setAttributes: (attributes) => give(handle, attributes).catch(failed('chmod', this.#named(name))),
      close: () => handle.close(),
    }
  }

  /** What the kernel does not move out of a file is written from memory, which also tells the reason. */
  async #write(handle: fs.FileHandle, data: Uint8Array | StoredBytes, offset: number): Promise<void> {
    const { length } = data
    const place = data instanceof Uint8Array ? undefined : data.place
    const moving = place && this.#native.sendFile(place.fd, place.offset, handle.fd, offset, length)
    let written = Math.max(0, (await moving) ?? 0)
    if (written === length) return
    const bytes = bytesOf(data)
    while (written < length)
      written += (await handle.write(bytes, written, length - written, offset + written)).bytesWritten
  }

  async rewrite(name: string, data: Uint8Array, file: NewFile): Promise<void> {
    await this.#onFile('write', name, O_WRONLY, (handle) => fill(handle, data, file))
  }

  async symlink(target: string | Uint8Array, name: string): Promise<void> {
    // A view of the bytes, because Node takes the target as a Buffer only.
    const bytes = typeof target === 'string' ? target : Buffer.from(target)
    await fs.symlink(bytes, this.#place('symlink', name)).catch(failed('symlink', this.#named(name)))
  }

  async move(name: string, to: Folder, as = name): Promise<void> {
    const subject = `${this.#named(name)} to ${to instanceof LinuxFolder ? to.#named(as) : 'a folder'}`
    if (!(to instanceof LinuxFolder)) throw kernelError('rename', subject, 'EXDEV')
    await fs.rename(this.#place('rename', name), to.#place('rename', as)).catch(failed('rename', subject))
  }

  async remove(name: string): Promise<void> {
    await removeTree(this.#native, this.#place('remove', name))
  }

  async removeFolder(name: string): Promise<void> {
    await fs.rmdir(this.#place('rmdir', name)).catch(failed('rmdir', this.#named(name)))
  }

  async setOwner(name: string, uid: number, gid: number): Promise<void> {
    await fs.lchown(this.#place('chown', name), uid, gid).catch(failed('chown', this.#named(name)))
  }

  async setAttributes({ mode, uid, gid }: FileAttributes): Promise<void> {
    const report = failed('chmod', this.#path)
    // The mode last, because a change of owner clears the setuid and setgid bits.
    await fs.chown(this.#itself, uid, gid).catch(report)
    await fs.chmod(this.#itself, mode).catch(report)
  }

  async close(): Promise<void> {
    await this.#handle.close()
  }

  get #itself(): string {
    return `/proc/self/fd/${this.#handle.fd}`
  }

  #place(call: string, name: string): string {
    if (name === '' || name === '.' || name === '..' || /[/\0]/.test(name)) {
      throw kernelError(call, this.#named(JSON.stringify(name)), 'EINVAL')
    }
    return `${this.#itself}/${name}`
  }

  #named(name: string): string {
    return `${this.#path}/${name}`
  }

  /** Only root may read the file until it is complete. */
  async #create(name: string): Promise<fs.FileHandle> {
    const flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW
    const report = failed('create', this.#named(name))
    return fs.open(this.#place('create', name), flags, 0o600).catch(report)
  }

  async #onFile<T>(
    call: string,
    name: string,
    flags: number,
    use: (file: fs.FileHandle) => Promise<T>,
  ): Promise<T> {
    const file = await this.#open(call, name, flags)
    try {
      return await use(file).catch(failed(call, this.#named(name)))
    } finally {
      await file.close()
    }
  }

  /** Checks that the entry is a regular file first, because opening a fifo or a device has side effects. */
  async #open(call: string, name: string, flags: number): Promise<fs.FileHandle> {
    const subject = this.#named(name)
    const report = failed(call, subject)
    const found = await fs.open(this.#place(call, name), O_PATH | O_NOFOLLOW).catch(report)
    try {
      if (!(await found.stat().catch(report)).isFile()) throw kernelError(call, subject, 'EINVAL')
      return await fs.open(`/proc/self/fd/${found.fd}`, flags | O_NONBLOCK).catch(report)
    } finally {
      await found.close()
    }
  }
}

/** Truncates after the write, so that no reader finds the file empty in between. */
async function fill(handle: fs.FileHandle, data: Uint8Array, file: NewFile): Promise<void> {
  await handle.writeFile(data)
  await handle.truncate(data.length)
  await give(handle, file)
  const seconds = Number(file.modifiedNs) / 1e9
  await handle.utimes(seconds, seconds)
}

async function give(handle: fs.FileHandle, { mode, uid, gid }: FileAttributes): Promise<void> {
  await handle.chown(uid, gid)
  await handle.chmod(mode)
}
