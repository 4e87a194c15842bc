import type { Fd, Streams } from '../../os/streams/streams.ts'
import type { KeptLines } from './kept-lines.ts'

/**
 * Returns a function that writes lines to the process's own stdout, in a guest the console. They wait in `lines` for a slow
 * reader, and are dropped without one. `process.stdout` would load Node's sockets, 3 ms of a start.
 */
export function standardOutput(
  streams: Pick<Streams, 'tryWrite' | 'writable'>,
  stdout: Fd,
  lines: KeptLines,
): (line: string) => void {
  let isWaiting = false
  const flush = () => {
    const write = (bytes: Buffer) => {
      try {
        return streams.tryWrite(stdout, bytes)
      } catch {
        // Nobody reads, so the line is as good as written.
        return bytes.length
      }
    }
    if (!lines.writeTo(write)) void wait()
  }
  const wait = async () => {
    isWaiting = true
    await streams.writable(stdout).catch(() => {})
    isWaiting = false
    flush()
  }
  return (line) => {
    lines.add(line)
    if (!isWaiting) flush()
  }
}
