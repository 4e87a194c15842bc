import type { FileKind } from '../../../client/files/file-kind.ts'
import { callFailure } from '../../clients.ts'
import { CommandFailure, EXIT } from '../../command.ts'
import type { TarEnd } from './local-tar.ts'
import type { Placement } from './placement.ts'
import { renameArchive } from './rename-archive.ts'

export interface Tar {
  output(): AsyncIterable<Uint8Array>
  /** Returns whether tar still reads. */
  write(data: Uint8Array): Promise<boolean>
  /** Closes stdin and waits for the exit. */
  end(): Promise<TarEnd>
  kill(): Promise<void> | void
}

export interface Copying {
  readonly moved: (bytes: number) => void
  /** Called with what the user should know besides the outcome. */
  readonly warn: (text: string) => void
  readonly signal: AbortSignal
}

export interface TreeCopy extends Copying {
  readonly creator: Tar
  /** The name of the archive's top, empty for `.`. */
  readonly from: string
  readonly sourceText: string
  /** Called once the kind of the source is known. */
  readonly place: (kind: FileKind) => Promise<Placement>
  readonly extract: (folder: string) => Promise<Tar>
  readonly targetText: (placement: Placement) => string
}

/** Copies a tree. Throws {@link CommandFailure} that names what is missing or may be incomplete. */
export async function copyTree(copy: TreeCopy): Promise<void> {
  const { creator, extract, from, place, targetText } = copy
  const leftOut: string[] = []
  let begun: Begun
  const pieces = renameArchive(creator.output(), {
    from,
    leftOut: (name, kind) => void leftOut.push(`${name} (a ${kind})`),
    to: async (kind) => {
      const placement = await place(kind)
      begun = { extractor: await extract(placement.folder), target: targetText(placement) }
      return placement.name
    },
  })
  try {
    await passOn(copy, pieces, () => begun)
  } catch (error) {
    await Promise.all([creator.kill(), begun?.extractor.kill()])
    throw begun === undefined ? callFailure('cp', error) : incomplete(error, begun.target, copy)
  }
  checkLeftOut(leftOut)
}

/** The failure of a copy that has begun. An interruption prints no error, so a warning says what is left. */
export function incomplete(
  error: unknown,
  target: string,
  { signal, warn }: Pick<Copying, 'signal' | 'warn'>,
): unknown {
  const text = `${target} may be incomplete`
  if (signal.aborted) warn(text)
  const failure = callFailure('cp', error)
  if (!(failure instanceof CommandFailure)) return failure
  return new CommandFailure(failure.exitStatus, `${failure.message}; ${text}`, { cause: error })
}

export function checkLeftOut(leftOut: readonly string[]): void {
  if (leftOut.length === 0) return
  throw new CommandFailure(EXIT.failed, `cp: not copied: ${listed(leftOut, ', ')}; all else was`)
}

type Begun = { readonly extractor: Tar; readonly target: string } | undefined

async function passOn(
  { creator, moved, sourceText, warn }: TreeCopy,
  archive: AsyncIterable<Buffer>,
  begun: () => Begun,
): Promise<void> {
  let reads = true
  for await (const piece of batched(archive)) {
    reads = (await begun()?.extractor.write(piece)) === true
    if (!reads) break
    moved(piece.length)
  }
  // An extractor that no longer reads has failed, and its end says why.
  if (!reads) await creator.kill()
  const made = reads ? await creator.end() : undefined
  const { extractor, target } = begun() ?? {}
  const extracted = await extractor?.end()
  if (made !== undefined && made.status !== 0) throw tarFailure(sourceText, made)
  if (extracted === undefined || target === undefined)
    throw new CommandFailure(EXIT.failed, `cp: ${sourceText}: its tar has written nothing`)
  if (!reads || extracted.status !== 0) throw tarFailure(target, extracted)
  if (made !== undefined && made.errors !== '') warn(errorText(made))
}

const PIECE_BYTES = 1 << 20

/** Joins pieces, because each of them is a call. */
async function* batched(pieces: AsyncIterable<Buffer>): AsyncGenerator<Buffer, void, undefined> {
  let batch: Buffer[] = []
  let bytes = 0
  for await (const piece of pieces) {
    batch.push(piece)
    bytes += piece.length
    if (bytes < PIECE_BYTES) continue
    yield Buffer.concat(batch)
    batch = []
    bytes = 0
  }
  if (bytes > 0) yield Buffer.concat(batch)
}

/** Leaves out the lines by which tar only announces its exit. */
export function tarFailure(subject: string, end: TarEnd): CommandFailure {
  return new CommandFailure(EXIT.failed, `cp: ${subject}: ${errorText(end)}`)
}

function errorText({ errors, status }: TarEnd): string {
  const lines = errors
    // GNU tar does not say why a write was short.
    .replaceAll(/Wrote only \d+ of \d+ bytes/g, '$&: no space left on device')
    .split('\n')
    .filter((line) => !/^(tar: (Exiting with|Error is not|error exit)|$)/.test(line))
  return lines.length === 0 ? `tar: exit status ${status}` : listed(lines, '; ')
}

const MOST_LISTED = 3

function listed(texts: readonly string[], separator: string): string {
  const more = texts.length > MOST_LISTED ? ` and ${texts.length - MOST_LISTED} more` : ''
  return `${texts.slice(0, MOST_LISTED).join(separator)}${more}`
}
