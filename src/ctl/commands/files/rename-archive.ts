import { type FileKind, isCopied } from '../../../client/files/file-kind.ts'
import { CommandFailure, EXIT } from '../../command.ts'
import { BLOCK_BYTES, TarBlocks } from './tar-blocks.ts'
import { cString, paddedTo, readHeader, type TarHeader, writeHeader } from './tar-header.ts'

export interface Renaming {
  /** The name of the archive's top; empty for an archive of `.`. */
  readonly from: string
  /** Chooses the new name of the top at the first entry. undefined drops that entry, and the top of other names. */
  readonly to: (kind: FileKind) => Promise<string | undefined>
  /** Called for a device or a fifo, which is not copied. */
  readonly leftOut: (name: string, kind: FileKind) => void
}

/**
 * Renames the entries of an archive, because busybox's tar cannot. A container is not trusted, so the new archive has
 * only files, folders and links below the new name. Throws {@link CommandFailure}.
 */
export async function* renameArchive(
  archive: AsyncIterable<Uint8Array>,
  { from, leftOut, to }: Renaming,
): AsyncGenerator<Buffer, void, undefined> {
  const blocks = new TarBlocks(archive)
  const root = partsOf(bytesOf(from))
  let top: readonly string[] | undefined
  for (let entry = await nextEntry(blocks); entry !== undefined; entry = await nextEntry(blocks)) {
    const { block, header } = entry
    const kind = kindOf(header)
    const below = partsBelow(root, header.name)
    top ??= partsOf(bytesOf((await to(kind)) ?? ''))
    const name = [...top, ...below].join('/')
    const data = blocks.pass(paddedTo(header.sizeBytes))
    if (name === '' || !isCopied(kind)) {
      if (kind !== 'folder') leftOut(textOf(below.join('/')), kind)
      for await (const _ of data);
      continue
    }
    const linkName =
      header.type === HARD_LINK ? [...top, ...partsBelow(root, header.linkName)].join('/') : header.linkName
    // Only a file has data: another tar could take a link's data for headers.
    const sizeBytes = header.type === FILE ? header.sizeBytes : 0
    yield writeHeader(block, { ...header, linkName, name, sizeBytes })
    for await (const piece of data) if (header.type === FILE) yield piece
  }
  if (top !== undefined && blocks.isEnded) yield Buffer.alloc(2 * BLOCK_BYTES)
}

const [FILE, HARD_LINK] = ['0', '1']
const KINDS: Readonly<Record<string, FileKind>> = {
  [FILE]: 'file',
  [HARD_LINK]: 'file',
  2: 'link',
  3: 'device',
  4: 'device',
  5: 'folder',
  6: 'fifo',
}

function kindOf({ name, type }: TarHeader): FileKind {
  const kind = KINDS[type]
  if (kind === undefined) throw refused(name, `kind ${JSON.stringify(type)} of tar`)
  return kind
}

interface Entry {
  readonly block: Buffer
  readonly header: TarHeader
}

/** The next entry, with the long names and pax records before it; undefined at the end of the archive. */
async function nextEntry(blocks: TarBlocks): Promise<Entry | undefined> {
  let more: Partial<TarHeader> = {}
  for (;;) {
    const block = await blocks.takeHeader()
    if (block === undefined) return undefined
    const header = readHeader(block)
    const told = TOLD[header.type]
    if (told === undefined) return { block, header: checked({ ...header, ...more }) }
    if (!(header.sizeBytes <= MOST_TOLD_BYTES))
      throw refused(header.name, `a header of ${header.sizeBytes} bytes`)
    const data = await blocks.take(paddedTo(header.sizeBytes))
    if (data === undefined) return undefined
    more = { ...more, ...told(data.toString('latin1', 0, header.sizeBytes)) }
  }
}

function checked(header: TarHeader): TarHeader {
  if (Number.isSafeInteger(header.sizeBytes)) return header
  throw refused(header.name, 'no size')
}

const MOST_TOLD_BYTES = 1 << 20

/** The entries that only describe the next one. */
const TOLD: Readonly<Record<string, (data: string) => Partial<TarHeader>>> = {
  K: (data) => ({ linkName: cString(data) }),
  L: (data) => ({ name: cString(data) }),
  g: () => ({}),
  x: paxHeader,
}

/** The used records of a pax header; a record is `LENGTH KEY=VALUE` and a newline. */
function paxHeader(data: string): Partial<TarHeader> {
  const found: { name?: string; linkName?: string; sizeBytes?: number } = {}
  for (let rest = data; rest !== ''; ) {
    const [, digits = '', key = ''] = /^(\d{1,7}) ([^=]+)=/.exec(rest) ?? []
    const [begin, length] = [digits.length + key.length + 2, Number(digits)]
    if (key === '' || length <= begin || length > rest.length || key.startsWith('GNU.sparse'))
      throw refused('a pax header', JSON.stringify(rest.slice(0, 40)))
    const value = rest.slice(begin, length - 1)
    if (key === 'path') found.name = value
    if (key === 'linkpath') found.linkName = value
    if (key === 'size') found.sizeBytes = Number.parseInt(value, 10)
    rest = rest.slice(length)
  }
  return found
}

function partsBelow(root: readonly string[], name: string): readonly string[] {
  const parts = partsOf(name)
  if (parts.includes('..') || root.some((part, at) => parts[at] !== part))
    throw refused(name, `want a name below ${JSON.stringify(textOf(root.join('/')))}`)
  return parts.slice(root.length)
}

function partsOf(name: string): readonly string[] {
  return name.split('/').filter((part) => part !== '' && part !== '.')
}

/** Names in an archive are bytes, here one a character (latin1). */
function bytesOf(text: string): string {
  return Buffer.from(text).toString('latin1')
}

function textOf(bytes: string): string {
  return Buffer.from(bytes, 'latin1').toString()
}

function refused(name: string, text: string): CommandFailure {
  return new CommandFailure(EXIT.failed, `cp: entry ${JSON.stringify(textOf(name))}: ${text}`)
}

/** undefined for an archive without entries. */
export async function kindOfFirst(archive: AsyncIterable<Uint8Array>): Promise<FileKind | undefined> {
  const entry = await nextEntry(new TarBlocks(archive))
  return entry && kindOf(entry.header)
}
