import { connect } from 'node:net'
import { connect as connectTls } from 'node:tls'
import { describe, expect, it } from 'vitest'
import { abortable } from '../../../../src/base/abort.ts'
import { VMControllerDefinition } from '../../../../src/gen/vm.ts'
import { openController } from '../../../../src/host/controller/client.ts'
import { readCredentials } from '../../../../src/host/tls/credentials.ts'
import { dialHost } from '../../../../src/host/tls/dial-host.ts'
import { clientFor } from '../../../../src/rpc/client.ts'
import { credentialsOf, startControllers } from '../../../support/wing/controller/test-controllers.ts'
import { hypervisor, storageLocking } from '../../../support/wing/controller/vms.ts'
import { hostAuthority } from '../../../support/wing/moves/host-certificates.ts'

const test = await startControllers({ hosts: ['a', 'b', 'expired'] })
const [endpoint = { host: '', port: 0 }] = test.endpoints
const within = AbortSignal.timeout(20_000)

describe('the certificate of a caller', () => {
  it('is that of the host which a call names', async () => {
    const b = test.clientOf('b')
    const us = hypervisor('a')
    const calls = [
      b.service.ensureVm(storageLocking(us)),
      b.service.forecastTarget({ vm: storageLocking(us) }),
      b.service.removeVm({ us }),
      b.service.renewLease({ us, nonce: Buffer.of(1) }),
      b.vms.ensureMigrationTarget({ us }),
      b.vms.migrationSwitchover({ us, them: hypervisor('b') }),
      b.runLease(us, within).next(),
    ]
    for (const outcome of await Promise.allSettled(calls))
      expect(outcome).toMatchObject({
        reason: {
          code: 'PERMISSION_DENIED',
          message: 'us.pod_name: host a, but the certificate is of host b',
        },
      })
    await expect(b.service.registerHost({ host: { id: 'a' } })).rejects.toMatchObject({
      code: 'PERMISSION_DENIED',
    })
  })

  it('is not that of a controller for what hosts call', async () => {
    const credentials = credentialsOf(test.authority, 'controller')
    const connection = await dialHost(endpoint, { name: 'controller', credentials, signal: within })
    const vms = clientFor(VMControllerDefinition, connection)
    const us = hypervisor('controller')
    await expect(vms.ensureMigrationTarget({ us })).rejects.toMatchObject({ code: 'PERMISSION_DENIED' })
    connection.close()
  })

  it('is refused when another authority has signed it, or when it has expired', async () => {
    test.authority.sign('expired', undefined, -1)
    const others = hostAuthority('others', ['a', 'controller'])
    const refused = [
      { ...credentialsOf(others, 'a'), pem: { ...others.pemOf('a'), ca: test.authority.pemOf('a').ca } },
      credentialsOf(test.authority, 'expired'),
    ]
    for (const credentials of refused)
      await expect(
        dialHost(endpoint, { name: 'controller', credentials, signal: within }),
      ).rejects.toMatchObject({
        code: 'PERMISSION_DENIED',
      })
    const { cert, key } = test.authority.pemOf('expired')
    expect(cert).not.toBe('')
    expect(key).not.toBe('')
    await expect(readCredentials({ ...refused[1]?.files, id: 'expired' } as never)).rejects.toThrow(
      /expired on/,
    )
  })

  it('is wanted', async () => {
    const { ca } = test.authority.pemOf('a')
    const socket = connectTls({ ...endpoint, ca, servername: 'controller', ALPNProtocols: ['h2'] })
    const closed = new Promise<unknown>((resolve) => socket.once('error', resolve).once('close', resolve))
    socket.resume()
    expect(await abortable(closed, within)).toMatchObject({
      code: 'ERR_SSL_TLSV13_ALERT_CERTIFICATE_REQUIRED',
    })
  })
})

describe('the certificate of a controller', () => {
  it('is refused unless it has the name of a controller', async () => {
    const credentials = credentialsOf(test.authority, 'a')
    await expect(dialHost(endpoint, { name: 'b', credentials, signal: within })).rejects.toMatchObject({
      code: 'PERMISSION_DENIED',
    })
  })
})

describe('a port of the controller', () => {
  it('closes a connection that shows no certificate', async () => {
    const socket = connect(endpoint)
    socket.write('GET / HTTP/1.1\r\n\r\n')
    const received: Buffer[] = []
    socket.on('data', (chunk) => received.push(chunk)).on('error', () => {})
    await abortable(new Promise((resolve) => socket.once('close', resolve)), within)
    expect(Buffer.concat(received).toString('latin1')).not.toContain('HTTP')
  })
})

describe('a client without a controller', () => {
  it('fails in its time', async () => {
    const nowhere = { host: '127.0.0.1', port: 1 }
    const client = openController({ endpoints: [nowhere], credentials: credentialsOf(test.authority, 'a') })
    await expect(client.service.listHosts({}, { timeoutMs: 500 })).rejects.toMatchObject({
      code: 'UNAVAILABLE',
      message: expect.stringMatching(/^controllers 127\.0\.0\.1:1: no answer in time/),
    })
    client.close()
  })
})
