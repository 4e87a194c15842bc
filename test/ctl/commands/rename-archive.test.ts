import { execFileSync } from 'node:child_process'
import { linkSync, mkdirSync, symlinkSync, truncateSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { Readable } from 'node:stream'
import { describe, expect, it } from 'vitest'
import { kindOfFirst, renameArchive } from '../../../src/ctl/commands/files/rename-archive.ts'
import { writeHeader } from '../../../src/ctl/commands/files/tar-header.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

const LONG = 'long '.repeat(30).trim()

function archive(fill: (folder: string) => void, ...words: readonly string[]): Buffer {
  const folder = temporaryFolder()
  fill(folder)
  return execFileSync('tar', ['-c', '-f', '-', '-C', folder, ...words])
}

/** Renames an archive in pieces of this size and returns tar's list of the result. */
async function renamed(
  from: string,
  to: string | undefined,
  bytes: Buffer,
  pieceBytes = 700,
): Promise<{
  readonly names: readonly string[]
  readonly leftOut: readonly string[]
  readonly archive: Buffer
}> {
  const pieces = Array.from({ length: Math.ceil(bytes.length / pieceBytes) }, (_, at) =>
    bytes.subarray(at * pieceBytes, (at + 1) * pieceBytes),
  )
  const leftOut: string[] = []
  const renaming = { from, to: async () => to, leftOut: (name: string) => void leftOut.push(name) }
  const parts: Buffer[] = []
  for await (const part of renameArchive(Readable.from(pieces), renaming)) parts.push(part)
  const result = Buffer.concat(parts)
  const names = execFileSync('tar', ['-t', '-f', '-', '--quoting-style=literal'], { input: result })
  return { names: names.toString().trim().split('\n').sort(), leftOut, archive: result }
}

function tree(folder: string): void {
  mkdirSync(join(folder, `base/${LONG}`), { recursive: true })
  writeFileSync(join(folder, 'base/ä file'), 'x'.repeat(1000))
  linkSync(join(folder, 'base/ä file'), join(folder, `base/${LONG}/same`))
  symlinkSync(`../${LONG}/${LONG}`, join(folder, 'base/link'))
}

describe('renameArchive', () => {
  it.each(['gnu', 'oldgnu', 'pax'])('renames all entries of an archive of format %s', async (format) => {
    const bytes = archive(tree, `--format=${format}`, './base')
    for (const pieceBytes of [1, 700, bytes.length]) {
      const { archive: result, names } = await renamed('base', `new ${LONG}`, bytes, pieceBytes)
      const top = `new ${LONG}`
      expect(names).toEqual([
        `${top}`,
        `${top}/link`,
        `${top}/${LONG}`,
        `${top}/${LONG}/same`,
        `${top}/ä file`,
      ])
      const folder = temporaryFolder()
      execFileSync('tar', ['-x', '-f', '-', '-C', folder], { input: result })
      const read = execFileSync('sh', [
        '-c',
        `cd "$0"/new*; readlink link; ls -i . long* | grep -c "$(stat -c %i ä*)"`,
        folder,
      ])
      expect(read.toString()).toBe(`../${LONG}/${LONG}\n2\n`)
    }
  })

  it('leaves the first entry out when only what is in it is wanted', async () => {
    const bytes = archive(tree, '--exclude=long*', './base')
    expect((await renamed('base', undefined, bytes)).names).toEqual(['link', 'ä file'])
    const dot = archive((folder) => writeFileSync(join(folder, 'x'), ''), '.')
    expect((await renamed('', undefined, dot)).names).toEqual(['x'])
    expect((await renamed('', 'to', dot)).names).toEqual(['to', 'to/x'])
  })

  it('leaves fifos and devices out', async () => {
    const bytes = archive((folder) => {
      mkdirSync(join(folder, 'base'))
      execFileSync('mkfifo', [join(folder, 'base/fifo')])
      writeFileSync(join(folder, 'base/x'), '')
    }, 'base')
    expect(await renamed('base', 'to', bytes)).toMatchObject({ names: ['to', 'to/x'], leftOut: ['fifo'] })
  })

  it.each([
    [
      'another name',
      archive((folder) => writeFileSync(join(folder, 'other'), ''), 'other'),
      /entry "other": want a name below "base"/,
    ],
    ['a way upwards', entry({ name: 'base/../../x' }), /entry "base\/..\/..\/x": want/],
    [
      'a hard link to elsewhere',
      entry({ type: '1', linkName: '/etc/passwd' }),
      /entry "\/etc\/passwd": want/,
    ],
    ['a volume', entry({ type: 'V' }), /entry "base": kind "V" of tar/],
    ['a name without end', entry({ type: 'L', sizeBytes: 2 ** 33 }), /a header of 8589934592 bytes/],
    ['no tar', Buffer.alloc(512, 'x'), /what tar has written is no archive/],
  ])('refuses %s', async (_what, bytes, text) => {
    await expect(renamed('base', 'to', bytes)).rejects.toThrow(text)
  })

  it.each(['gnu', 'pax'])('refuses a sparse file of format %s', async (format) => {
    const sparse = (folder: string) => {
      writeFileSync(join(folder, 'base'), '')
      truncateSync(join(folder, 'base'), 1 << 20)
    }
    await expect(renamed('base', 'to', archive(sparse, '-S', `--format=${format}`, 'base'))).rejects.toThrow(
      /cp: entry/,
    )
  })

  it('drops the data of a link or folder, in which a header may hide', async () => {
    const hidden = entry({ name: '../hidden' })
    const bytes = Buffer.concat([
      entry({ type: '2', linkName: 'x', sizeBytes: 512 }),
      hidden,
      entry({ name: 'base/y' }),
    ])
    expect((await renamed('base', 'to', bytes)).names).toEqual(['to', 'to/y'])
  })

  it('does not end a truncated archive like a complete one', async () => {
    const bytes = archive(tree, './base')
    const parts: Buffer[] = []
    const renaming = { from: 'base', to: async () => 'to', leftOut: () => {} }
    for await (const part of renameArchive(Readable.from([bytes.subarray(0, 600)]), renaming))
      parts.push(part)
    expect(Buffer.concat(parts)).toHaveLength(512)
  })
})

describe('kindOfFirst', () => {
  it('returns the kind of the first entry, or that there is none', async () => {
    const kind = (bytes: Buffer) => kindOfFirst(Readable.from([bytes]))
    expect(await kind(archive(tree, './base'))).toBe('folder')
    expect(await kind(archive((folder) => writeFileSync(join(folder, LONG), ''), LONG))).toBe('file')
    expect(await kind(Buffer.alloc(10_240))).toBeUndefined()
    expect(await kind(Buffer.alloc(0))).toBeUndefined()
  })
})

function entry(header: Partial<Parameters<typeof writeHeader>[1]>): Buffer {
  return writeHeader(Buffer.alloc(512), { type: '0', name: 'base', linkName: '', sizeBytes: 0, ...header })
}
