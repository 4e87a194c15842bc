import { AgentError } from '../../../base/errors.ts'
import { bytesOf, type StoredBytes } from '../../../base/stored-bytes.ts'
import { truncate } from '../../../base/truncate.ts'
import type { CopyFileRequest } from '../../../gen/agent.ts'
import { kindOfMode } from '../../../os/files/file-status.ts'
import type { FileAttributes } from '../../../os/files/folder.ts'

/** A checked CopyFile request. */
export interface Copy {
  /** The path below the root: no component is empty, `.` or `..`. */
  readonly parents: readonly string[]
  readonly name: string
  /** The entry is built beside its place under this name, which depends only on the path. */
  readonly temporaryName: string
  readonly parentMode: number
  readonly attributes: FileAttributes
  readonly content: FileChunk | { readonly kind: 'directory' } | LinkContent
}

export interface FileChunk {
  readonly kind: 'file'
  /** The size of the whole file. */
  readonly sizeBytes: bigint
  readonly offset: bigint
  readonly data: Uint8Array | StoredBytes
}

interface LinkContent {
  readonly kind: 'symlink'
  readonly target: Uint8Array
}

/** PATH_MAX without the final NUL byte; the same limit holds for the target of a link. */
const MAX_PATH_BYTES = 4095

/** The file type bits of a mode (man 7 inode). Go sends none for a regular file. */
const S_IFMT = 0o170000

const TEMPORARY_NAME = /^\.copyfile-[0-9a-f]{32}$/

/** Throws INTERNAL for a path that is not below `root`, INVALID_ARGUMENT for any other field. Does no I/O. */
export function checkCopy(request: CopyFileRequest, data: FileChunk['data'], root: string): Copy {
  const components = componentsOf(request.path, root)
  return {
    parents: components.slice(0, -1),
    name: components.at(-1) ?? '',
    temporaryName: temporaryName(components.join('/')),
    // Go's shim also sends the type bits of Go's os.FileMode.
    parentMode: request.dirMode & 0o777,
    attributes: {
      mode: request.fileMode & 0o7777,
      // An ID above 2^31 arrives as a negative number.
      uid: request.uid >>> 0,
      gid: request.gid >>> 0,
    },
    content: contentOf(request, data),
  }
}

function componentsOf(path: string, root: string): readonly string[] {
  const refuse = (reason: string) =>
    new AgentError('INTERNAL', `path ${JSON.stringify(truncate(path, 200))}: ${reason}`, { fault: 'caller' })
  if (Buffer.byteLength(path) > MAX_PATH_BYTES) throw refuse(`longer than ${MAX_PATH_BYTES} bytes`)
  if (path.includes('\0')) throw refuse('contains a NUL byte')
  if (path.split('/').includes('..')) throw refuse('contains ".."')
  const below = path.startsWith(`${root}/`) ? path.slice(root.length).split('/') : []
  const components = below.filter((component) => component !== '' && component !== '.')
  if (components.length === 0) throw refuse(`not below ${root}`)
  if (TEMPORARY_NAME.test(components.at(-1) ?? '')) throw refuse('the name of an unfinished file')
  return components
}

function temporaryName(path: string): string {
  // Loaded on demand: Node takes milliseconds to load this module.
  const { createHash } = process.getBuiltinModule('node:crypto')
  return `.copyfile-${createHash('sha256').update(path).digest('hex').slice(0, 32)}`
}

function contentOf(request: CopyFileRequest, data: FileChunk['data']): Copy['content'] {
  const { fileMode, fileSize, offset } = request
  if (fileSize < 0n) throw invalid(`file_size: ${fileSize}, want 0 or more`)
  if (offset < 0n) throw invalid(`offset: ${offset}, want 0 or more`)
  const kind = fileMode & S_IFMT ? kindOfMode(fileMode) : 'file'
  switch (kind) {
    case 'file':
      if (offset + BigInt(data.length) > fileSize)
        throw invalid(`offset: ${offset}, ${data.length} bytes of data end after file_size ${fileSize}`)
      return { kind, sizeBytes: fileSize, offset, data }
    case 'directory':
      return { kind }
    case 'symlink':
      return { kind, target: targetOf(bytesOf(data)) }
    default: {
      const what = kind ?? `type 0${(fileMode & S_IFMT).toString(8)}`
      throw invalid(`file_mode: ${what}, want a regular file, a directory or a symbolic link`)
    }
  }
}

function targetOf(data: Uint8Array): Uint8Array {
  if (data.length === 0) throw invalid('data: empty, want the target of the symbolic link')
  if (data.length > MAX_PATH_BYTES)
    throw invalid(`data: a target of ${data.length} bytes, want at most ${MAX_PATH_BYTES}`)
  if (data.includes(0)) throw invalid('data: the target of the symbolic link contains a NUL byte')
  return data
}

function invalid(text: string): AgentError {
  return new AgentError('INVALID_ARGUMENT', text)
}
