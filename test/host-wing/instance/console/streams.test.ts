import { PassThrough } from 'node:stream'
import { describe, expect, it } from 'vitest'
import { drained, SharedConsole } from '../../../../src/host/instance/console/shared-console.ts'
import type { Holder } from '../../../../src/host/instance/holder/holder.ts'
import { joined } from '../../../../src/host/instance/streams.ts'

async function* nothing(): AsyncGenerator<Uint8Array> {}

describe('a stream to a machine', () => {
  it('ends at once for a caller that has left', async () => {
    const answers = joined(new PassThrough(), nothing(), AbortSignal.abort(new Error('has left')))
    await expect(answers.next()).rejects.toThrow('has left')
  })

  it('is closed when its last caller leaves while the holder opens it', async () => {
    const opened = Promise.withResolvers<void>()
    const stream = new PassThrough()
    const asked = Promise.withResolvers<void>()
    const holder = {
      rings: async () => [],
      attach: async () => {
        asked.resolve()
        await opened.promise
        return { first: 0n, stream }
      },
    } as unknown as Holder
    const left = new AbortController()
    const answer = new SharedConsole(holder, () => {}).join(nothing(), left.signal).next()
    await asked.promise
    left.abort(new Error('has left'))
    await expect(answer).rejects.toThrow('has left')
    opened.resolve()
    await expect.poll(() => stream.destroyed).toBe(true)
  })

  it('leaves no listeners when it has room again', async () => {
    const stream = new PassThrough()
    const before = stream.listenerCount('close')
    const waited = drained(stream)
    stream.emit('drain')
    await waited
    expect([stream.listenerCount('close'), stream.listenerCount('drain')]).toEqual([before, 0])
  })
})
