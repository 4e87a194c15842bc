import { open } from 'node:fs/promises'
import { failed, tooLong } from '../errors.ts'

/** Reads a file line by line, in pieces. Throws EFBIG, naming the limit, above `maxBytes`, and the kernel's errors. */
export async function readLines(
  path: string,
  maxBytes: number,
  onLine: (line: string) => void,
): Promise<void> {
  const report = failed('read', path)
  const buffer = Buffer.alloc(PIECE_BYTES)
  // A character of several bytes may be cut by the end of a piece.
  const decoder = new TextDecoder()
  let begun = ''
  let bytes = 0
  const file = await open(path).catch(report)
  try {
    for (;;) {
      const { bytesRead } = await file.read(buffer).catch(report)
      if (bytesRead === 0) break
      bytes += bytesRead
      if (bytes > maxBytes) throw tooLong(path, maxBytes)
      const lines = (begun + decoder.decode(buffer.subarray(0, bytesRead), { stream: true })).split('\n')
      begun = lines.pop() ?? ''
      for (const line of lines) onLine(line)
    }
  } finally {
    await file.close()
  }
  if (begun !== '') onLine(begun)
}

const PIECE_BYTES = 64 * 1024
