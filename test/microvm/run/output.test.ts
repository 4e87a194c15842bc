import { Writable } from 'node:stream'
import { describe, expect, it } from 'vitest'
import { neverAborted } from '../../../src/base/abort.ts'
import { copyOutput, OutputClosed } from '../../../src/microvm/run/output.ts'

/** A ReadStdout that gives these pieces, then the end. */
function reads(...pieces: readonly string[]) {
  const left = [...pieces, '']
  return async () => ({ data: Buffer.from(left.shift() ?? '') })
}

/** A stream of which each write fails with `code`, as a file or pipe of the tool's would. */
function failing(code: string): Writable {
  const write = (_chunk: unknown, _encoding: unknown, done: (error: Error) => void) =>
    done(Object.assign(new Error(`${code}: write`), { code }))
  return new Writable({ write }).on('error', () => {})
}

describe('copyOutput', () => {
  it('writes everything in its order', async () => {
    const seen: string[] = []
    const target = new Writable({
      write: (chunk, _encoding, done) => {
        seen.push(String(chunk))
        done()
      },
    })
    await copyOutput(reads('a', 'b'), 'c', target, neverAborted)
    expect(seen).toEqual(['a', 'b'])
  })

  it('tells a lost reader from other failures', async () => {
    await expect(copyOutput(reads('a'), 'c', failing('EPIPE'), neverAborted)).rejects.toThrow(OutputClosed)
    await expect(copyOutput(reads('a'), 'c', failing('ENOSPC'), neverAborted)).rejects.toThrow(
      'cannot write the output: ENOSPC: write',
    )
  })

  it('has lost its reader when the stream was destroyed before', async () => {
    const target = failing('EPIPE')
    target.destroy()
    await expect(copyOutput(reads('a'), 'c', target, neverAborted)).rejects.toThrow(OutputClosed)
  })
})
