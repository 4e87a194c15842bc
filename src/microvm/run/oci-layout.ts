import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { ToolFailure, tool } from '../../build/tool.ts'
import { UsageError } from '../command-line/usage-error.mjs'

export interface ImageConfig {
  readonly entrypoint: readonly string[]
  readonly command: readonly string[]
  readonly env: readonly string[]
  readonly cwd: string
  readonly user: { readonly uid: number; readonly gid: number; readonly additionalGids: readonly number[] }
}

/** The annotation of an image's tag in index.json (OCI image layout specification). */
const TAG_ANNOTATION = 'org.opencontainers.image.ref.name'

export function isOciLayout(folder: string): boolean {
  return existsSync(join(folder, 'oci-layout')) && existsSync(join(folder, 'index.json'))
}

/** Unpacks one image of a layout below `bundle`; `root` is its root filesystem. Throws {@link UsageError}. */
export async function unpackLayout(options: {
  readonly layout: string
  readonly tag: string | undefined
  readonly bundle: string
  readonly signal: AbortSignal
}): Promise<{ readonly root: string; readonly config: ImageConfig }> {
  const { layout, tag, bundle, signal } = options
  const chosen = chooseTag(layout, tag)
  const unpack = ['unpack', '--image', `${layout}:${chosen}`, bundle]
  try {
    await tool('umoci', unpack, { debianPackage: 'umoci', signal })
  } catch (error) {
    if (!(error instanceof ToolFailure)) throw error
    const [, reason = error.message] = /^\W*(.*)\s*$/.exec(error.stderr) ?? []
    throw new UsageError(`--rootfs ${layout}: umoci: ${reason}`, { cause: error })
  }
  const unpacked = readJson(join(bundle, 'config.json'))
  const own = imageConfigOf(layout, chosen)
  return { root: join(bundle, 'rootfs'), config: mergeConfig(own, record(unpacked.process)) }
}

/** The tag that was asked for, or the only one. Throws {@link UsageError} when no tag or no single tag fits. */
export function chooseTag(layout: string, asked: string | undefined): string {
  const tags = manifestsOf(layout).map(tagOf)
  const known = tags.filter((tag) => tag !== undefined)
  const [only] = known
  if (only === undefined) throw new UsageError(`--rootfs ${layout}: no image with a tag`)
  if (asked !== undefined) {
    if (known.includes(asked)) return asked
    throw new UsageError(`--rootfs ${layout}: no tag ${asked}, want one of ${known.join(', ')}`)
  }
  if (known.length === 1) return only
  throw new UsageError(
    `--rootfs ${layout}: several images, want ${layout}:TAG with one of ${known.join(', ')}`,
  )
}

/** Takes Entrypoint and Cmd from the image, and everything else as umoci resolved it with the image's own users. */
function mergeConfig(
  own: Readonly<Record<string, unknown>>,
  process: Readonly<Record<string, unknown>>,
): ImageConfig {
  const user = record(process.user)
  return {
    entrypoint: strings(own.Entrypoint),
    command: strings(own.Cmd),
    env: strings(process.env),
    cwd: typeof process.cwd === 'string' && process.cwd !== '' ? process.cwd : '/',
    user: {
      uid: number(user.uid),
      gid: number(user.gid),
      additionalGids: Array.isArray(user.additionalGids) ? user.additionalGids.map(number) : [],
    },
  }
}

function imageConfigOf(layout: string, tag: string): Readonly<Record<string, unknown>> {
  const descriptor = manifestsOf(layout).find((entry) => tagOf(entry) === tag)
  const manifest = readBlob(layout, descriptor ?? {})
  return record(readBlob(layout, record(manifest.config)).config)
}

function manifestsOf(layout: string): readonly Readonly<Record<string, unknown>>[] {
  const { manifests } = readJson(join(layout, 'index.json'))
  return Array.isArray(manifests) ? manifests.map(record) : []
}

function tagOf(descriptor: Readonly<Record<string, unknown>>): string | undefined {
  const tag = record(descriptor.annotations)[TAG_ANNOTATION]
  return typeof tag === 'string' ? tag : undefined
}

function readBlob(
  layout: string,
  descriptor: Readonly<Record<string, unknown>>,
): Readonly<Record<string, unknown>> {
  const match = /^([a-z0-9]+):([0-9a-f]+)$/.exec(String(descriptor.digest))
  if (match === null)
    throw new UsageError(`--rootfs ${layout}: invalid digest "${String(descriptor.digest)}"`)
  const [, algorithm = '', digest = ''] = match
  return readJson(join(layout, 'blobs', algorithm, digest))
}

function readJson(path: string): Readonly<Record<string, unknown>> {
  try {
    return record(JSON.parse(readFileSync(path, 'utf8')))
  } catch (error) {
    if (error instanceof SyntaxError) throw new UsageError(`${path}: malformed JSON`, { cause: error })
    throw error
  }
}

function record(value: unknown): Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null ? Object.fromEntries(Object.entries(value)) : {}
}

function strings(value: unknown): readonly string[] {
  return Array.isArray(value) ? value.filter((entry) => typeof entry === 'string') : []
}

function number(value: unknown): number {
  return typeof value === 'number' ? value : 0
}
