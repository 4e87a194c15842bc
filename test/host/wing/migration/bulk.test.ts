import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { neverAborted } from '../../../../src/base/abort.ts'
import { openIncoming } from '../../../../src/host/migration/bulk/incoming.ts'
import { openOutgoing } from '../../../../src/host/migration/bulk/outgoing.ts'
import { bulkSettings } from '../../../../src/host/migration/bulk/settings.ts'
import { TestHolders } from '../../../support/host/test-holder.ts'
import { checkNumbers, lastNumber, startBulkMachine } from '../../../support/wing/bulk-machines.ts'
import { makeAuthority } from '../secrets/nbd-server.ts'

const holders = new TestHolders()
const authority = makeAuthority('hosts')
for (const id of ['a', 'b', 'c'])
  authority.sign(id, [`subjectAltName=DNS:${id}`, 'extendedKeyUsage=serverAuth,clientAuth'])

const identityOf = (id: string) => ({
  ca: authority.ca,
  cert: join(authority.folder, `${id}.pem`),
  key: join(authority.folder, `${id}.key`),
})

describe('the bulk of a move', () => {
  it('carries disk and memory of a guest that writes both all the time', async () => {
    const [source, target] = [
      await startBulkMachine(holders),
      await startBulkMachine(holders, { isIncoming: true }),
    ]
    const incoming = await openIncoming(target, {
      disks: [target.disk],
      listen: { host: '127.0.0.1', tls: { identity: identityOf('b'), peer: 'a' } },
    })
    const outgoing = await openOutgoing(source, {
      ...{ disks: [source.disk], endpoints: incoming, settings: bulkSettings() },
      ...{ tls: { identity: identityOf('a'), peer: 'b' }, wasRunning: true, signal: neverAborted },
    })
    await outgoing.copyDisks()
    await outgoing.sendMemory()
    await outgoing.endDisks()
    expect(readFileSync(target.path).equals(readFileSync(source.path))).toBe(true)
    await outgoing.endMemory()
    await incoming.arrived
    await incoming.endDisks()
    outgoing.finish()
    const before = await checkNumbers(target)
    expect(before).toBeGreaterThan(0)
    await target.qmp.execute('cont', {}, neverAborted)
    await expect.poll(() => lastNumber(target), { timeout: 10_000 }).toBeGreaterThan(before)
    await target.qmp.execute('stop', {}, neverAborted)
    await checkNumbers(target)
  })
})
