import { describe, expect, it } from 'vitest'
import { OutputReplay } from '../../../src/handlers/stdio/output-replay.ts'

describe('OutputReplay', () => {
  it('keeps the last bytes of a stream by their offset', () => {
    const tail = new OutputReplay(4).open()
    add(tail, 'ab')
    expect(read(tail, 0)).toEqual({ offset: 0, data: 'ab', totalBytes: 2 })
    add(tail, 'cdef')
    expect(read(tail, 0)).toEqual({ offset: 2, data: 'cdef', totalBytes: 6 })
    add(tail, 'g')
    expect(read(tail, 4)).toEqual({ offset: 4, data: 'efg', totalBytes: 7 })
    expect(read(tail, 4, 2)).toEqual({ offset: 4, data: 'ef', totalBytes: 7 })
    expect(read(tail, 7)).toEqual({ offset: 7, data: '', totalBytes: 7 })
  })

  it('counts bytes of which only the last ones are added', () => {
    const tail = new OutputReplay(4).open()
    tail.add(1001, Buffer.from('wxyz'))
    expect(read(tail, 3)).toEqual({ offset: 997, data: 'wxyz', totalBytes: 1001 })
  })

  it('refuses an offset beyond the end', () => {
    const tail = new OutputReplay(4).open()
    add(tail, 'ab')
    expect(() => tail.read(3, 0)).toThrow('offset: 3, want at most 2, the end')
  })

  it('keeps nothing when it is off', () => {
    const tail = new OutputReplay(0).open()
    add(tail, 'ab')
    expect(() => tail.read(0, 0)).toThrow('agent.output_replay_bytes: 0, output is not kept')
  })

  it('keeps nothing of a stream for which there is no room, until another one ends', () => {
    const replay = new OutputReplay(4, 8)
    const [first] = [replay.open(), replay.open()]
    expect(() => replay.open().read(0, 0)).toThrow('output: not kept, other streams use all 8 bytes')
    first.close()
    first.close()
    expect(read(replay.open(), 0)).toEqual({ offset: 0, data: '', totalBytes: 0 })
    expect(() => replay.open().read(0, 0)).toThrow('not kept')
  })

  function add(tail: ReturnType<OutputReplay['open']>, text: string): void {
    const bytes = Buffer.from(text)
    tail.add(bytes.length, bytes.subarray(-tail.capacity))
  }

  function read(tail: ReturnType<OutputReplay['open']>, offset: number, most = 0) {
    const { data, ...known } = tail.read(offset, most)
    return { ...known, data: Buffer.from(data).toString() }
  }
})
