import { execFileSync } from 'node:child_process'
import { closeSync, openSync, readSync } from 'node:fs'
import { join } from 'node:path'

const FLAGS = [
  ...['-m32', '-march=i686', '-mno-sse', '-mno-mmx', '-O1', '-Wall', '-Werror'],
  ...['-ffreestanding', '-fno-stack-protector', '-fcf-protection=none', '-fno-asynchronous-unwind-tables'],
  ...['-nostdlib', '-static', '-fno-pie', '-no-pie', '-Wl,-Ttext=0x100000', '-Wl,--build-id=none'],
  ...['-Wl,-N', '-Wl,--no-warn-rwx-segments'],
]

/** The disk of a journal: as many sectors as the guest uses. */
export const JOURNAL_MIB = 128

/** Compiles the guest that keeps a journal (journal.c), and returns the path of its kernel. */
export function journalGuest(folder: string): string {
  const path = join(folder, 'journal.kernel')
  execFileSync('gcc', [...FLAGS, '-o', path, join(import.meta.dirname, 'journal.c')])
  return path
}

/** What the guest has written to one sector. */
export interface JournalRecord {
  /** 1 for the first sector. */
  readonly number: number
  /** 1 for the first boot. */
  readonly boot: number
  /** Of the guest's counter of time. */
  readonly time: bigint
}

const SECTOR = 512

/** The records after the first `known` ones. */
export function readJournal(path: string, known: number): readonly JournalRecord[] {
  const file = openSync(path, 'r')
  try {
    const records: JournalRecord[] = []
    for (;;) {
      const piece = Buffer.alloc(256 * SECTOR)
      const bytes = readSync(file, piece, 0, piece.length, (known + records.length) * SECTOR)
      for (let at = 0; at < bytes; at += SECTOR) {
        if (piece.readUInt32LE(at) === 0) return records
        const [number, boot] = [piece.readUInt32LE(at), piece.readUInt32LE(at + 4)]
        records.push({ number, boot, time: piece.readBigUInt64LE(at + 8) })
      }
      if (bytes < piece.length) return records
    }
  } finally {
    closeSync(file)
  }
}

/** A line of the console. */
export interface JournalLine {
  readonly number: number
  readonly boot: number
  /** The guest has found the record of another one. */
  readonly isConflict: boolean
  /** It follows the beginning of another one, in which an earlier boot has ended. */
  readonly isAfterCut: boolean
}

const LINE = /^([0-9a-f]{0,8}|[0-9a-f]{8} [0-9a-f]{0,8})(! )?([0-9a-f]{8}) ([0-9a-f]{8})$/

/** The whole lines of what the guest has printed. Throws for any other. */
export function journalLines(text: string): readonly JournalLine[] {
  const lines = text.split('\n').slice(0, -1)
  return lines.map((line) => {
    const [, cut, mark, number = '', boot = ''] = LINE.exec(line) ?? []
    if (number === '') throw new Error(`a line of the console: ${JSON.stringify(line)}`)
    return {
      number: Number.parseInt(number, 16),
      boot: Number.parseInt(boot, 16),
      isConflict: mark !== undefined,
      isAfterCut: cut !== '',
    }
  })
}
