import { mkdirSync, readdirSync, statSync, truncateSync, writeFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { ToolFailure, tool } from '../../build/tool.ts'
import { splitTag } from '../command-line/check-files.mjs'
import { UsageError } from '../command-line/usage-error.mjs'
import { type ImageConfig, isOciLayout, unpackLayout } from './oci-layout.ts'

/** A container's root filesystem as a folder, before it is packed. */
export interface RootFolder {
  readonly folder: string
  /** How the image wants to be run; undefined for a bare root filesystem. */
  readonly config: ImageConfig | undefined
}

const MEBIBYTE = 1 << 20
/** Room for the container's writes; the image is sparse. */
const FREE_BYTES = 256 * MEBIBYTE
const FREE_INODES = 16_384

/**
 * Opens `--rootfs` as a folder: a directory as it is, a tar archive unpacked, an OCI image layout (directory or tar)
 * unpacked by umoci. Unpacks below `work`. Throws {@link UsageError} when it is none of these.
 */
export async function openRoot(rootfs: string, work: string, signal: AbortSignal): Promise<RootFolder> {
  const { path, tag } = splitTag(rootfs)
  const folder = statSync(path).isDirectory() ? resolve(path) : await unpackTar(path, work, signal)
  if (isOciLayout(folder)) {
    const { root, config } = await unpackLayout({ layout: folder, tag, bundle: join(work, 'bundle'), signal })
    return { folder: root, config }
  }
  if (tag !== undefined)
    throw new UsageError(`--rootfs ${rootfs}: ${path} is not an OCI image layout and has no tags`)
  if (readdirSync(folder).length === 0)
    throw new UsageError(`--rootfs ${rootfs}: empty, want the files of a root filesystem`)
  return { folder, config: undefined }
}

/** Packs a folder into an ext4 image at `image`. Keeps owners, links and extended attributes. */
export async function packRoot(folder: string, image: string, signal: AbortSignal): Promise<void> {
  const bytes = await diskUsage(folder, '--block-size=1', signal)
  const inodes = await diskUsage(folder, '--inodes', signal)
  const size = Math.ceil((bytes * 1.1 + FREE_BYTES) / MEBIBYTE) * MEBIBYTE
  writeFileSync(image, '')
  truncateSync(image, size)
  // No journal, because the image does not outlive the run.
  const options = [
    '-q',
    '-F',
    '-t',
    'ext4',
    '-O',
    '^has_journal',
    '-m',
    '0',
    '-N',
    String(inodes + FREE_INODES),
  ]
  await tool('mke2fs', [...options, '-d', folder, image], { debianPackage: 'e2fsprogs', signal })
}

async function unpackTar(path: string, work: string, signal: AbortSignal): Promise<string> {
  const folder = join(work, 'unpacked')
  mkdirSync(folder, { mode: 0o755 })
  const keep = ['--numeric-owner', '--same-permissions', '--xattrs', '--xattrs-include=*']
  try {
    await tool('tar', ['--extract', '--file', resolve(path), '--directory', folder, ...keep], {
      debianPackage: 'tar',
      signal,
    })
  } catch (error) {
    if (!(error instanceof ToolFailure)) throw error
    // Its last line only says that it has failed.
    const [reason = error.message] = /^tar.*: .*$/m.exec(error.stderr) ?? []
    throw new UsageError(`--rootfs ${path}: ${reason}`, { cause: error })
  }
  return folder
}

async function diskUsage(folder: string, unit: string, signal: AbortSignal): Promise<number> {
  const usage = await tool('du', ['--summarize', unit, folder], { debianPackage: 'coreutils', signal })
  return Number.parseInt(usage, 10)
}
