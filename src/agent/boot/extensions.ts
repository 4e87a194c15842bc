import { neverAborted } from '../../base/abort.ts'
import { AgentError, messageOf } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import { loadDmVerity, type Verity, verityTarget } from '../../os/devices/dm-verity.ts'
import { type BootContext, outcomeOf, type StepOutcome } from './step.ts'

/** Each extension is mounted on a folder with its name below this one. */
const EXTENSIONS = '/run/kata-extensions'

/** An image that the kernel command line names: the disk with the serial `extension-NAME`. */
interface Extension {
  readonly name: string
  /** Fields of dm-verity, such as `root_hash`; undefined when the shim gives none. */
  readonly verity: ReadonlyMap<string, string> | undefined
}

/** Mounts the erofs disks of shims (docs/boot.md). The guest works without them, so failures are warnings. */
export async function mountExtensions(context: BootContext): Promise<StepOutcome> {
  const { files, mounts } = context.os
  const extensions = extensionsIn(await files.readText('/proc/cmdline'), context.log)
  if (extensions.length === 0) return 'already'
  const mounted = new Set((await mounts.list()).map(({ mountPoint }) => mountPoint))
  const outcomes: StepOutcome[] = []
  for (const extension of extensions) {
    if (mounted.has(`${EXTENSIONS}/${extension.name}`)) continue
    try {
      await mountOne(context, extension)
      outcomes.push('done')
    } catch (error) {
      context.log.warn('extension not mounted', { name: extension.name, error: messageOf(error) })
    }
  }
  return outcomeOf(outcomes)
}

/** Kata's shims write `kata.extension.NAME.verity_params` and `=FIELD=VALUE,…`, without `=` if there are no fields. */
function extensionsIn(commandLine: string, log: Logger): readonly Extension[] {
  const words = commandLine.split(/\s+/).filter((word) => word.startsWith('kata.extension.'))
  return words.flatMap((word) => {
    const [, name, fields] = /^kata\.extension\.(\w[\w-]*)\.verity_params(?:=(.*))?$/.exec(word) ?? []
    if (name !== undefined)
      return { name, verity: fields ? new Map(fields.split(',').map(nameAndValue)) : undefined }
    const error = 'want kata.extension.NAME.verity_params, or that with =FIELD=VALUE,...'
    log.warn('extension not mounted', { word, error })
    return []
  })
}

function nameAndValue(field: string): [string, string] {
  const equals = field.indexOf('=')
  return [field.slice(0, equals), field.slice(equals + 1)]
}

async function mountOne(context: BootContext, { name, verity }: Extension): Promise<void> {
  const { files, mounts } = context.os
  const disk = await diskWithSerial(context, `extension-${name}`)
  const [data, hashes] = await partitionsOf(context, disk)
  // With only one of the two, the guest would read an image that is not verified.
  if ((hashes === undefined) !== (verity === undefined)) {
    const what = verity === undefined ? 'verity_params: missing' : 'no second partition'
    throw new AgentError('INTERNAL', `${disk}: ${what}, want hashes and verity_params, or neither`)
  }
  const source =
    hashes === undefined || verity === undefined
      ? (data ?? disk)
      : await verified(context, { name, data: data ?? disk, hashes, verity })
  const target = `${EXTENSIONS}/${name}`
  await files.makeDirectories(target, 0o755)
  await mounts.mount({ source, target, type: 'erofs', flags: ['ro'], data: '' })
}

async function diskWithSerial({ os: { files } }: BootContext, wanted: string): Promise<string> {
  for (const name of await files.list('/sys/block')) {
    const serial = `/sys/block/${name}/serial`
    if ((await files.stat(serial)) !== undefined && (await files.readText(serial)).trim() === wanted)
      return `/dev/${name}`
  }
  throw new AgentError('INTERNAL', `no disk with the serial ${wanted}`)
}

/** The nodes of a disk's first and second partition, as far as they exist. */
async function partitionsOf(
  { os: { files } }: BootContext,
  disk: string,
): Promise<readonly (string | undefined)[]> {
  const separator = /\d$/.test(disk) ? 'p' : ''
  return await Promise.all(
    [1, 2].map(async (number) => {
      const node = `${disk}${separator}${number}`
      return (await files.stat(node))?.kind === 'block' ? node : undefined
    }),
  )
}

interface VerityRequest {
  readonly name: string
  readonly data: string
  readonly hashes: string
  readonly verity: ReadonlyMap<string, string>
}

/** Maps a dm-verity device that verifies every read of `data`, and returns its node. */
async function verified({ os }: BootContext, request: VerityRequest): Promise<string> {
  const verity = verityOf(request)
  const missing = await loadDmVerity(os, neverAborted)
  if (missing !== undefined) throw new AgentError('INTERNAL', missing)
  return await os.blockDevices.map(`extension-${request.name}`, verityTarget(verity))
}

/** The hashes have no superblock and are of version 1. Throws INTERNAL with the field of a wrong parameter. */
function verityOf({ data, hashes, verity }: VerityRequest): Verity {
  const read = (field: string, pattern: RegExp, fallback = '') => {
    const value = verity.get(field) || fallback
    if (pattern.test(value)) return value
    throw new AgentError('INTERNAL', `verity_params: ${field}: "${value}", want ${pattern.source}`)
  }
  return {
    hashType: 1,
    rootHash: read('root_hash', /^[0-9a-f]+$/i),
    salt: read('salt', /^([0-9a-f]+|-)$/i, '-'),
    data,
    dataBlocks: BigInt(read('data_blocks', /^[1-9]\d{0,15}$/)),
    dataBlockSize: Number(read('data_block_size', /^[1-9]\d{0,6}$/, '4096')),
    hashes,
    hashBlockSize: Number(read('hash_block_size', /^[1-9]\d{0,6}$/, '4096')),
    firstHashBlock: 0,
    algorithm: 'sha256',
  }
}
