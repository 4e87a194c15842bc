import type { Storage } from '../../../../gen/agent.ts'
import { type MountOptions, parseMountOptions } from '../../mount-options.ts'
import { blk, type DiskDriver, mmioblk, nvdimm, scsi, wantsFilesystem } from '../block.ts'
import {
  invalidLayer,
  type LayerDirectory,
  type LayerOptions,
  parseLayerDirectory,
  parseLayerOptions,
} from './layer-options.ts'

export interface Image {
  readonly mountPoint: string
  readonly fsGroup: Storage['fsGroup']
  /** The read-only layers, the uppermost first. */
  readonly lowers: readonly Layer[]
  /** The layer that takes all writes; without it the image is read-only. */
  readonly upper: UpperLayer | undefined
}

export interface Layer {
  readonly disk: DiskDriver
  readonly source: string
  /** Undefined when the layer has the whole disk. */
  readonly partition: number | undefined
  readonly verity: LayerVerity | undefined
  readonly mount: MountOptions
}

export interface UpperLayer extends Layer {
  readonly makesFilesystem: boolean
  readonly directories: readonly LayerDirectory[]
}

/** A dm-verity superblock and hash tree, which follow the data on the same device. */
export interface LayerVerity {
  /** Hexadecimal. */
  readonly rootHash: string
  readonly hashOffsetBytes: number
  /** Hexadecimal; undefined when only the superblock has it. */
  readonly salt: string | undefined
}

/** The number of entries in a usual GPT. */
const MAX_PARTITIONS = 128

/** Throws INVALID_ARGUMENT for layers that do not form an image, UNIMPLEMENTED for an unknown option. */
export function parseImage(storages: readonly [Storage, ...Storage[]]): Image {
  const [{ mountPoint, fsGroup }] = storages
  const lowers: Layer[] = []
  const uppers: UpperLayer[] = []
  for (const storage of storages) {
    const options = parseLayerOptions(storage)
    if (isUpper(storage, options)) uppers.push(parseUpper(storage, options))
    else lowers.push(parseLower(storage, options))
  }
  const [upper, another] = uppers
  if (another !== undefined) throw invalidLayer(mountPoint, `${another.source}: a second upper layer`)
  if (lowers.length === 0) throw invalidLayer(mountPoint, 'no lower layer')
  return { mountPoint, fsGroup, lowers, upper }
}

/** The flag decides; without one, the file system does. */
function isUpper({ fstype, mountPoint, source }: Storage, options: LayerOptions): boolean {
  const [isMarkedUpper, isMarkedLower] = [options.has('overlay-upper'), options.has('overlay-lower')]
  if (isMarkedUpper && isMarkedLower)
    throw invalidLayer(mountPoint, `${source}: marked as both upper and lower`)
  const wanted = isMarkedUpper ? 'ext4' : isMarkedLower ? 'erofs' : fstype
  if (fstype !== wanted || (fstype !== 'ext4' && fstype !== 'erofs')) {
    throw invalidLayer(
      mountPoint,
      `${source}: fstype "${fstype}", want ext4 for the upper layer, erofs for the others`,
    )
  }
  return fstype === 'ext4'
}

function parseUpper(storage: Storage, options: LayerOptions): UpperLayer {
  const { mountPoint, source } = storage
  const layer = parseLayer(storage, options)
  if (layer.verity !== undefined)
    throw invalidLayer(mountPoint, `${source}: the upper layer cannot have dm-verity`)
  const directories = options
    .values('mkdir.path')
    .map((value) =>
      parseLayerDirectory(value, (reason) => invalidLayer(mountPoint, `option X-kata.mkdir.path: ${reason}`)),
    )
  return { ...layer, directories, makesFilesystem: wantsFilesystem(storage) }
}

function parseLower(storage: Storage, options: LayerOptions): Layer {
  if (options.values('mkdir.path').length > 0) {
    throw invalidLayer(
      storage.mountPoint,
      `${storage.source}: option X-kata.mkdir.path is only for the upper layer`,
    )
  }
  // Throws for create_filesystem, which a read-only layer cannot have.
  wantsFilesystem(storage)
  return parseLayer(storage, options, ['ro'])
}

function parseLayer(
  { driver, source, mountPoint }: Storage,
  options: LayerOptions,
  extraOptions: readonly string[] = [],
): Layer {
  if (source === '') throw invalidLayer(mountPoint, 'source is empty')
  return {
    disk: layerDisk(driver, mountPoint),
    source,
    partition: partitionOf(options, mountPoint),
    verity: verityOf(options, mountPoint),
    mount: parseMountOptions([...options.plain, ...extraOptions]),
  }
}

function partitionOf(options: LayerOptions, mountPoint: string): number | undefined {
  const text = options.value('partition-number')
  if (!options.has('gpt-partitioned')) {
    if (text === undefined) return undefined
    throw invalidLayer(mountPoint, 'option X-kata.partition-number: requires X-kata.gpt-partitioned=true')
  }
  const number = Number(text)
  if (text !== undefined && /^[1-9]\d*$/.test(text) && number <= MAX_PARTITIONS) return number
  throw invalidLayer(
    mountPoint,
    `option X-kata.partition-number: "${text ?? ''}", want a number from 1 to ${MAX_PARTITIONS}`,
  )
}

function verityOf(options: LayerOptions, mountPoint: string): LayerVerity | undefined {
  const [rootHash, offset, salt] = (
    ['dmverity.roothash', 'dmverity.hashoffset', 'dmverity.salt'] as const
  ).map(options.value)
  if (!options.has('dmverity-enabled')) {
    if (rootHash === undefined && offset === undefined && salt === undefined) return undefined
    // Ignoring them would skip a verification that the host expects.
    throw invalidLayer(mountPoint, 'options X-kata.dmverity.*: require X-kata.dmverity-enabled=true')
  }
  if (rootHash === undefined || !isHex(rootHash)) {
    throw invalidLayer(mountPoint, `option X-kata.dmverity.roothash: "${rootHash ?? ''}", want hexadecimal`)
  }
  const hashOffsetBytes = Number(offset)
  if (
    offset === undefined ||
    !/^\d+$/.test(offset) ||
    hashOffsetBytes % 512 !== 0 ||
    hashOffsetBytes > 2 ** 52
  ) {
    throw invalidLayer(
      mountPoint,
      `option X-kata.dmverity.hashoffset: "${offset ?? ''}", want a multiple of 512 bytes`,
    )
  }
  if (salt !== undefined && !isHex(salt)) {
    throw invalidLayer(mountPoint, `option X-kata.dmverity.salt: "${salt}", want hexadecimal`)
  }
  return { rootHash, hashOffsetBytes, salt }
}

function isHex(text: string): boolean {
  return /^(?:[0-9a-f]{2})+$/i.test(text)
}

const DISKS: ReadonlyMap<string, DiskDriver> = new Map([
  ['blk', blk],
  ['erofs.multi-layer', blk],
  ['mmioblk', mmioblk],
  ['nvdimm', nvdimm],
  ['scsi', scsi],
])

function layerDisk(driver: string, mountPoint: string): DiskDriver {
  const disk = DISKS.get(driver)
  if (disk === undefined) throw invalidLayer(mountPoint, `storage driver ${driver} has no disks`)
  return disk
}
