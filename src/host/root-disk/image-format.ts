import { AgentError } from '../../base/errors.ts'

/** How many of the first bytes decide. */
export const HEAD_BYTES = 512

/** The last bytes of an image, where two formats have their magic. */
export const TAIL_BYTES = 512

export type Compression = 'gzip' | 'zstd'

interface Magic {
  readonly format: string
  readonly offset: number
  readonly bytes: Buffer
}

const COMPRESSIONS: readonly (Magic & { readonly format: Compression })[] = [
  { format: 'gzip', offset: 0, bytes: Buffer.from('1f8b08', 'hex') },
  { format: 'zstd', offset: 0, bytes: Buffer.from('28b52ffd', 'hex') },
  // A frame that is skipped; pzstd begins with one.
  ...Array.from({ length: 16 }, (_, index) => {
    return { format: 'zstd' as const, offset: 0, bytes: Buffer.from([0x50 + index, 0x2a, 0x4d, 0x18]) }
  }),
]

/** Formats of which a guest would see the container, and of which some name other files of the host. */
const REFUSED: readonly Magic[] = [
  text('qcow', 'QFI\xfb'),
  text('qed', 'QED\0'),
  text('vmdk', 'KDMV'),
  text('vmdk', 'COWD'),
  text('vmdk', '# Disk DescriptorFile'),
  { format: 'vdi', offset: 64, bytes: Buffer.from('7f10dabe', 'hex') },
  text('vhd', 'conectix'),
  text('vhdx', 'vhdxfile'),
  text('luks', 'LUKS\xba\xbe'),
  text('parallels', 'WithoutFreeSpace'),
  text('parallels', 'WithouFreSpacExt'),
  text('bochs', 'Bochs Virtual HD Image'),
  text('cloop', '#!/bin/sh\n#V2.0 Format\nmodprobe cloop'),
  { format: 'android sparse image', offset: 0, bytes: Buffer.from('3aff26ed', 'hex') },
  { format: 'xz', offset: 0, bytes: Buffer.from('fd377a585a00', 'hex') },
  { format: 'lz4', offset: 0, bytes: Buffer.from('04224d18', 'hex') },
  { format: '7z', offset: 0, bytes: Buffer.from('377abcaf271c', 'hex') },
  text('bzip2', 'BZh'),
  text('zip', 'PK\x03\x04'),
  text('tar', 'ustar', 257),
]

const REFUSED_TAILS: readonly Magic[] = [text('vhd', 'conectix'), text('dmg', 'koly')]

/** The compression of an image by its first bytes. */
export function compressionOf(head: Buffer): Compression | undefined {
  return COMPRESSIONS.find((magic) => begins(head, magic))?.format
}

/** Throws FAILED_PRECONDITION unless the first bytes, decompressed, may be those of a raw disk. */
export function checkRawHead(head: Buffer, shown: string): void {
  refuse([...COMPRESSIONS, ...REFUSED], head, shown)
}

export function checkRawTail(tail: Buffer, shown: string): void {
  refuse(REFUSED_TAILS, tail, shown)
}

function refuse(magics: readonly Magic[], bytes: Buffer, shown: string): void {
  const found = magics.find((magic) => begins(bytes, magic))
  if (found === undefined) return
  throw new AgentError(
    'FAILED_PRECONDITION',
    `${shown}: format ${found.format}, want a raw disk, or one compressed by gzip or zstd`,
  )
}

function begins(bytes: Buffer, { offset, bytes: magic }: Magic): boolean {
  return bytes.subarray(offset, offset + magic.length).equals(magic)
}

function text(format: string, magic: string, offset = 0): Magic {
  return { format, offset, bytes: Buffer.from(magic, 'latin1') }
}
