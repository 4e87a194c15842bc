import type { Storage } from '../../../../gen/agent.ts'
import { type MountOptions, parseMountOptions } from '../../mount-options.ts'
import type { DiskDriver } from '../block.ts'
import { wantsFilesystem } from '../block.ts'
import { type LayerDirectory, parseLayerDirectory } from './layer-directory.ts'
import { layerDisk } from './layer-disk.ts'
import { invalidLayer, type LayerOptions, parseLayerOptions } from './layer-options.ts'

/** An image of layers, as it is to be mounted (spec E.3.7). */
export interface Image {
  readonly mountPoint: string
  readonly fsGroup: Storage['fsGroup']
  /** Read-only, the uppermost first. */
  readonly lowers: readonly Layer[]
  /** What is written to; without it the image is read-only. */
  readonly upper: UpperLayer | undefined
}

/** One layer, and where it is. */
export interface Layer {
  /** Finds the disk that it is on, by its source. */
  readonly disk: DiskDriver
  readonly source: string
  /** Its number, for one that has but a part of the disk. */
  readonly partition: number | undefined
  /** What its bytes are checked against. */
  readonly verity: LayerVerity | undefined
  readonly mount: MountOptions
}

export interface UpperLayer extends Layer {
  /** Whether its disk is new, and gets its file system first. */
  readonly makesFilesystem: boolean
  /** Folders that must be in it. */
  readonly directories: readonly LayerDirectory[]
}

/** A dm-verity superblock and hash tree, which follow the data on the same device. */
export interface LayerVerity {
  /** Hexadecimal. */
  readonly rootHash: string
  readonly hashOffsetBytes: number
  /** Hexadecimal; undefined where the superblock alone tells it. */
  readonly salt: string | undefined
}

/** Of a GPT as it is usually made. */
const MAX_PARTITIONS = 128

/**
 * Reads the storages of one image, which have one mount point. Throws INVALID_ARGUMENT for what cannot be mounted, and
 * UNIMPLEMENTED for an option that is not known.
 */
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
  if (another !== undefined) throw invalidLayer(mountPoint, `${another.source} is a second upper layer`)
  if (lowers.length === 0) throw invalidLayer(mountPoint, 'there is no lower layer')
  return { mountPoint, fsGroup, lowers, upper }
}

/** By its mark, or else by its file system. */
function isUpper({ fstype, mountPoint, source }: Storage, options: LayerOptions): boolean {
  const [isMarkedUpper, isMarkedLower] = [options.has('overlay-upper'), options.has('overlay-lower')]
  if (isMarkedUpper && isMarkedLower)
    throw invalidLayer(mountPoint, `${source} is marked as upper and as lower`)
  const wanted = isMarkedUpper ? 'ext4' : isMarkedLower ? 'erofs' : fstype
  if (fstype !== wanted || (fstype !== 'ext4' && fstype !== 'erofs')) {
    throw invalidLayer(
      mountPoint,
      `${source} has the fstype '${fstype}': ext4 is for the upper one, erofs for others`,
    )
  }
  return fstype === 'ext4'
}

function parseUpper(storage: Storage, options: LayerOptions): UpperLayer {
  const { mountPoint, source } = storage
  const layer = parseLayer(storage, options)
  if (layer.verity !== undefined)
    throw invalidLayer(mountPoint, `${source} is written to, and cannot have dm-verity`)
  const directories = options
    .values('mkdir.path')
    .map((value) =>
      parseLayerDirectory(value, (reason) => invalidLayer(mountPoint, `option X-kata.mkdir.path ${reason}`)),
    )
  return { ...layer, directories, makesFilesystem: wantsFilesystem(storage) }
}

function parseLower(storage: Storage, options: LayerOptions): Layer {
  if (options.values('mkdir.path').length > 0) {
    throw invalidLayer(
      storage.mountPoint,
      `${storage.source} is read-only: option X-kata.mkdir.path is for the upper one`,
    )
  }
  // Refuses a new file system on what is to be read.
  wantsFilesystem(storage)
  return parseLayer(storage, options, ['ro'])
}

function parseLayer(
  { driver, source, mountPoint }: Storage,
  options: LayerOptions,
  more: readonly string[] = [],
): Layer {
  if (source === '') throw invalidLayer(mountPoint, 'no source')
  return {
    disk: layerDisk(driver, mountPoint),
    source,
    partition: partitionOf(options, mountPoint),
    verity: verityOf(options, mountPoint),
    mount: parseMountOptions([...options.plain, ...more]),
  }
}

function partitionOf(options: LayerOptions, mountPoint: string): number | undefined {
  const text = options.value('partition-number')
  if (!options.has('gpt-partitioned')) {
    if (text === undefined) return undefined
    throw invalidLayer(mountPoint, 'option X-kata.partition-number needs X-kata.gpt-partitioned=true')
  }
  const number = Number(text)
  if (text !== undefined && /^[1-9]\d*$/.test(text) && number <= MAX_PARTITIONS) return number
  throw invalidLayer(
    mountPoint,
    `option X-kata.partition-number is a number from 1 to ${MAX_PARTITIONS}, not '${text ?? ''}'`,
  )
}

function verityOf(options: LayerOptions, mountPoint: string): LayerVerity | undefined {
  const [rootHash, offset, salt] = (
    ['dmverity.roothash', 'dmverity.hashoffset', 'dmverity.salt'] as const
  ).map(options.value)
  if (!options.has('dmverity-enabled')) {
    if (rootHash === undefined && offset === undefined && salt === undefined) return undefined
    // Somebody relies on it.
    throw invalidLayer(mountPoint, 'options X-kata.dmverity.… need X-kata.dmverity-enabled=true')
  }
  if (rootHash === undefined || !isHex(rootHash)) {
    throw invalidLayer(mountPoint, `option X-kata.dmverity.roothash is hexadecimal, not '${rootHash ?? ''}'`)
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
      `option X-kata.dmverity.hashoffset is a multiple of 512 bytes, not '${offset ?? ''}'`,
    )
  }
  if (salt !== undefined && !isHex(salt)) {
    throw invalidLayer(mountPoint, `option X-kata.dmverity.salt is hexadecimal, not '${salt}'`)
  }
  return { rootHash, hashOffsetBytes, salt }
}

function isHex(text: string): boolean {
  return /^(?:[0-9a-f]{2})+$/i.test(text)
}
