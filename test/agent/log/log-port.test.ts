import { beforeEach, describe, expect, it } from 'vitest'
import { KeptLines } from '../../../src/agent/log/kept-lines.ts'
import { LogPort } from '../../../src/agent/log/log-port.ts'
import { silentLogger } from '../../../src/base/log.ts'
import type { Fd } from '../../../src/os/streams/streams.ts'
import { FakeOs } from '../../support/fakes/fake-os.ts'
import { settle } from '../../support/pending.ts'

const HOST = { kind: 'vsock', cid: 2, port: 9 } as const

describe('the log port', () => {
  let os: FakeOs
  let port: LogPort

  beforeEach(async () => {
    os = new FakeOs()
    port = new LogPort(os, new KeptLines((count) => `lost ${count}\n`))
    await port.listen(silentLogger(), { kind: 'vsock', port: 1025 }, false)
  })

  it('is open, and gives its reader the lines since the start and each new one at once', async () => {
    expect(port.isOpen).toBe(true)
    port.write('one\n')
    const reader = os.hostSockets.dial(1025, HOST)
    expect(read(reader)).toBe('one\n')
    port.write('two\n')
    expect(read(reader)).toBe('two\n')
  })

  it('keeps 256 KiB of whole lines, and says how many are lost', async () => {
    for (let number = 0; number < 300; number++) port.write(lineOf(number))
    const lines = await readAll(os.hostSockets.dial(1025, HOST))
    expect(lines[0]).toBe('lost 44')
    expect(lines.slice(1)).toEqual(numbers(44, 300))
  })

  it('loses whole lines of a slow reader, with the marker in their place', async () => {
    const reader = os.hostSockets.dial(1025, HOST)
    // The connection takes 64 lines; the next line waits.
    for (let number = 0; number < 400; number++) port.write(lineOf(number))
    const lines = await readAll(reader)
    const marker = lines.findIndex((line) => line.startsWith('lost'))
    const lost = Number(lines[marker]?.slice(5))
    expect(lost).toBeGreaterThan(0)
    expect(lines.slice(0, marker)).toEqual(numbers(0, marker))
    expect(lines.slice(marker + 1)).toEqual(numbers(marker + lost, 400))
    expect(lines.filter((line) => line.startsWith('lost'))).toHaveLength(1)
  })

  it('gives a line that a reader received in part to the next reader as a whole', async () => {
    const first = os.hostSockets.dial(1025, HOST)
    port.write(`${'x'.repeat(70_000)}\n`)
    os.streams.close(first)
    await settle()
    const second = os.hostSockets.dial(1025, HOST)
    expect(await readAll(second)).toEqual(['x'.repeat(70_000)])
  })

  it('has one reader on the host, and ignores its input', async () => {
    const reader = os.hostSockets.dial(1025, HOST)
    os.streams.tryWrite(reader, Buffer.from('hello'))
    await settle()
    const others = [
      HOST,
      { kind: 'vsock', cid: 1, port: 9 } as const,
      { kind: 'vsock', cid: 3, port: 9 } as const,
    ]
    for (const peer of others) {
      const other = os.hostSockets.dial(1025, peer)
      expect(os.streams.tryRead(other, 10)?.length).toBe(0)
      os.streams.close(other)
    }
    port.write('line\n')
    expect(read(reader)).toBe('line\n')
  })

  function read(fd: Fd): string {
    return String(os.streams.tryRead(fd, 1_000_000) ?? '')
  }

  async function readAll(fd: Fd): Promise<string[]> {
    let text = ''
    for (let chunk = read(fd); chunk !== ''; chunk = read(fd)) {
      text += chunk
      await settle()
    }
    return text.trimEnd().split('\n').map(numberOf)
  }
})

function lineOf(number: number): string {
  return `${String(number).padEnd(1023, '.')}\n`
}

function numberOf(line: string): string {
  return line.replace(/\.+$/, '')
}

function numbers(from: number, to: number): string[] {
  return Array.from({ length: to - from }, (_, index) => String(from + index))
}
