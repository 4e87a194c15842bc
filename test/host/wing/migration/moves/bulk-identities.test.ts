import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import type { AddressInfo } from 'node:net'
import { connect, createServer } from 'node:tls'
import { describe, expect, it } from 'vitest'
import { neverAborted } from '../../../../../src/base/abort.ts'
import type { BulkEndpoint, BulkTls } from '../../../../../src/host/migration/bulk/bulk.ts'
import { openIncoming } from '../../../../../src/host/migration/bulk/incoming.ts'
import { TestHolders } from '../../../../support/host/test-holder.ts'
import { startBulkMachine } from '../../../../support/wing/moves/bulk-machines.ts'
import {
  checkGoesOn,
  hosts,
  openSource,
  startTarget,
  tlsOf,
} from '../../../../support/wing/moves/bulk-moves.ts'
import { hostAuthority } from '../../../../support/wing/moves/host-certificates.ts'

const holders = new TestHolders()

/** Another CA, with a host of the same name. */
const others = hostAuthority('other hosts', ['a', 'b'])
const LIMIT = { timeout: 180_000 }

describe('certificates of a move', () => {
  it('come with a group for Diffie-Hellman, which QEMU would compute for seconds', async () => {
    const target = await startBulkMachine(holders, { isIncoming: true })
    const event = { name: 'qcrypto_tls_creds_load_dh', enable: true }
    await target.qmp.command({ execute: 'trace-event-set-state', arguments: event }, neverAborted)
    const listen = { host: '127.0.0.1', tls: tlsOf('b', 'a') }
    const incoming = await openIncoming(target, { disks: [target.disk], listen })
    // Of a group that it computes, QEMU tells no file.
    await expect.poll(() => target.log()).toMatch(/qcrypto_tls_creds_load_dh .*dh-params\.pem/)
    await incoming.close()
  })

  it('of a third host of the same CA are refused by the target on both channels', LIMIT, async () => {
    const source = await startBulkMachine(holders)
    const { incoming, target } = await startTarget(holders)
    const third = { tls: tlsOf('c', 'b') }
    await expect(openSource(source, incoming, third)).rejects.toMatchObject({
      ...{ code: 'FAILED_PRECONDITION', message: expect.stringMatching(/^disk disk: QEMU: /) },
    })
    await expect.poll(() => target.log()).toMatch(/TLS x509 authz check for CN=c is denied/)
    const memoryOnly = await openSource(source, { disks: undefined, memory: incoming.memory }, third)
    await expect(memoryOnly.sendMemory()).rejects.toMatchObject({ code: 'FAILED_PRECONDITION' })
    await memoryOnly.close()
    await checkGoesOn(source)
    await expect(incoming.arrived).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
      message: expect.stringMatching(/^memory: not arrived: .*authz check for CN=c is denied/),
    })
    // The disks still wait for the right one.
    const right = await openSource(source, incoming)
    await right.copyDisks()
    await right.close()
    await incoming.close()

    // The same host is taken where it is the one that is expected: nothing else refuses it.
    const listen = { host: '127.0.0.1', tls: tlsOf('b', 'c') }
    const second = await startTarget(holders, { listen })
    const expected = await openSource(source, second.incoming, third)
    await expected.copyDisks()
    await expected.sendMemory()
    await expected.close()
    await checkGoesOn(source)
    await second.incoming.close()
  })

  it(
    'of another CA, of another name and those that have expired are refused by the source',
    LIMIT,
    async () => {
      const source = await startBulkMachine(holders)
      hosts.sign('b-expired', ['subjectAltName=DNS:b'], -1)
      const wrong: readonly (readonly [string, BulkTls, RegExp])[] = [
        ['of another CA', tlsOf('b', 'a', others), /hasn't got a known issuer/],
        ['of another host', tlsOf('c', 'a'), /does not match the hostname b/],
        ['that has expired', tlsOf('b-expired', 'a'), /is not trusted/],
      ]
      for (const [name, { identity }, words] of wrong) {
        const server = await standIn(identity)
        const outgoing = await openSource(source, { disks: undefined, memory: server.endpoint })
        await expect(outgoing.sendMemory(), name).rejects.toMatchObject({
          ...{ code: 'FAILED_PRECONDITION', message: expect.stringMatching(words) },
        })
        await outgoing.close()
        server.close()
      }
      const { incoming } = await startTarget(holders, { listen: { host: '127.0.0.1', tls: tlsOf('b', 'a') } })
      await expect(openSource(source, incoming, { tls: tlsOf('a', 'c') })).rejects.toMatchObject({
        ...{ code: 'FAILED_PRECONDITION', message: expect.stringMatching(/does not match the hostname c/) },
      })
      await expect(openSource(source, incoming, { tls: tlsOf('a', 'b', others) })).rejects.toMatchObject({
        ...{ code: 'FAILED_PRECONDITION', message: expect.stringMatching(/hasn't got a known issuer/) },
      })
      await incoming.close()
      await checkGoesOn(source)
    },
  )

  it('of another CA and those that have expired are refused by the target', LIMIT, async () => {
    hosts.sign('a-expired', ['subjectAltName=DNS:a'], -1)
    for (const { identity } of [tlsOf('a', 'b', others), tlsOf('a-expired', 'b')]) {
      const { incoming, target } = await startTarget(holders)
      const { cert, key } = identity
      const { memory } = incoming
      if ('path' in memory) throw new Error('no TCP')
      const client = connect({
        ...memory,
        cert: readFileSync(cert),
        key: readFileSync(key),
        rejectUnauthorized: false,
      })
      client.on('error', () => {}).resume()
      await once(client, 'close')
      await expect.poll(() => target.log()).toMatch(/Verify failed|certificate/)
      await incoming.close()
    }
  })

  it('of the host itself that are wrong are told, and leave nothing', LIMIT, async () => {
    const source = await startBulkMachine(holders)
    hosts.sign('a-late', ['subjectAltName=DNS:a'], -1)
    const late = tlsOf('a-late', 'b')
    const missing = { ...late, identity: { ...late.identity, key: '/none' } }
    const listen = { disks: undefined, memory: { host: '127.0.0.1', port: 1 } }
    await expect(openSource(source, listen, { tls: late })).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
      message: expect.stringMatching(/a-late\.pem: .*has expired/),
    })
    await expect(openSource(source, listen, { tls: missing })).rejects.toMatchObject({
      ...{ code: 'FAILED_PRECONDITION', message: '/none: ENOENT' },
    })
    await checkGoesOn(source)
    const target = await startBulkMachine(holders, { isIncoming: true })
    const incoming = openIncoming(target, { disks: [target.disk], listen: { host: '127.0.0.1', tls: late } })
    await expect(incoming).rejects.toMatchObject({ code: 'FAILED_PRECONDITION' })
    await expect(openSource(source, listen)).resolves.toMatchObject({})
  })
})

/** A server of TLS that shows a certificate, and takes any client. */
async function standIn({
  cert,
  key,
}: BulkTls['identity']): Promise<{ readonly endpoint: BulkEndpoint; close(): void }> {
  const server = createServer({ cert: readFileSync(cert), key: readFileSync(key) }, (socket) =>
    socket.resume(),
  )
  server.on('tlsClientError', () => {})
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address() as AddressInfo
  return { endpoint: { host: '127.0.0.1', port }, close: () => void server.close() }
}
