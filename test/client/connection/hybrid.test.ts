import { once } from 'node:events'
import { describe, expect, it } from 'vitest'
import { neverAborted } from '../../../src/base/abort.ts'
import { hybridHandshake } from '../../../src/client/connection/dial.ts'
import { duplexPair } from '../../support/rpc/duplex-pair.ts'

describe('hybridHandshake', () => {
  it('requests the port, and leaves the bytes after the answer in the stream', async () => {
    const [client, daemon] = duplexPair()
    const shaken = hybridHandshake(client, 1024, neverAborted)
    const [asked] = await once(daemon, 'data')
    expect(String(asked)).toBe('CONNECT 1024\n')
    daemon.write('OK 10')
    daemon.write('24\nfirst')
    await shaken
    const [rest] = await once(client, 'data')
    expect(String(rest)).toBe('first')
  })

  it('rejects with UNAVAILABLE when the connection ends', async () => {
    const [client, daemon] = duplexPair()
    const shaken = hybridHandshake(client, 1024, neverAborted)
    daemon.end()
    await expect(shaken).rejects.toMatchObject({ code: 'UNAVAILABLE' })
  })

  it.each([
    ['NO\n', 'the daemon answered "NO"'],
    ['x'.repeat(40), 'the daemon answered no line'],
  ])('refuses the answer %j', async (answer, sentence) => {
    const [client, daemon] = duplexPair()
    const shaken = hybridHandshake(client, 1024, neverAborted)
    daemon.write(answer)
    await expect(shaken).rejects.toThrow(sentence)
  })

  it('stops waiting when the signal fires', async () => {
    const [client] = duplexPair()
    const abort = new AbortController()
    const shaken = hybridHandshake(client, 1024, abort.signal)
    abort.abort(new Error('enough'))
    await expect(shaken).rejects.toThrow('enough')
  })
})
