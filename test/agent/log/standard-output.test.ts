import { beforeEach, describe, expect, it } from 'vitest'
import { KeptLines } from '../../../src/agent/log/kept-lines.ts'
import { standardOutput } from '../../../src/agent/log/standard-output.ts'
import type { Fd } from '../../../src/os/streams/streams.ts'
import { FakeStreams } from '../../support/fakes/streams/fake-streams.ts'
import { settle } from '../../support/pending.ts'

const LINES_OF_PIPE = 64

describe('standardOutput', () => {
  let streams: FakeStreams
  let reader: Fd
  let write: (line: string) => void

  beforeEach(() => {
    streams = new FakeStreams()
    const { parentEnd, childEnd } = streams.pipe('child-reads')
    reader = childEnd
    write = standardOutput(streams, parentEnd, new KeptLines((count) => `lost ${count}\n`))
  })

  it('has written a line when it returns', () => {
    write('one\n')
    expect(read()).toBe('one\n')
  })

  it('keeps the lines of a slow reader in their order, and begins none before the last is whole', async () => {
    const lines = Array.from({ length: 2 * LINES_OF_PIPE }, (_, number) => lineOf(number))
    write('short\n')
    for (const line of lines) write(line)
    expect(await readAll()).toBe(`short\n${lines.join('')}`)
    write('later\n')
    expect(read()).toBe('later\n')
  })

  it('says how many lines it lost where its reader stayed away', async () => {
    for (let number = 0; number < 400; number += 1) write(lineOf(number))
    const text = await readAll()
    const lost = Number(/^lost (\d+)$/m.exec(text)?.[1])
    expect(text.split('\n')).toHaveLength(400 - lost + 2)
    expect(text).toContain(`${lineOf(LINES_OF_PIPE - 1)}lost ${lost}\n${lineOf(LINES_OF_PIPE + lost)}`)
    expect(text.endsWith(lineOf(399))).toBe(true)
  })

  it('drops what nobody can read any more', async () => {
    for (let number = 0; number < 2 * LINES_OF_PIPE; number += 1) write(lineOf(number))
    streams.close(reader)
    await settle()
    expect(() => write('one\n')).not.toThrow()
  })

  function read(): string {
    return String(streams.tryRead(reader, 1_000_000) ?? '')
  }

  async function readAll(): Promise<string> {
    let text = ''
    for (let piece = read(); piece !== ''; piece = read()) {
      text += piece
      await settle()
    }
    return text
  }
})

function lineOf(number: number): string {
  return `${String(number).padEnd(1023, '.')}\n`
}
