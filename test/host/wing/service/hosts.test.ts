import { chmodSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { neverAborted } from '../../../../src/base/abort.ts'
import { jsonLogger } from '../../../../src/base/log.ts'
import { HealthDefinition } from '../../../../src/gen/grpc/health/v1/health.ts'
import { InstanceServiceDefinition } from '../../../../src/gen/microvm/instance/v1/instance.ts'
import { readCredentials } from '../../../../src/host/tls/credentials.ts'
import { dialHost } from '../../../../src/host/tls/dial-host.ts'
import { clientFor } from '../../../../src/rpc/client.ts'
import { type RunningDaemon, runMockDaemon } from '../../../support/host-wing/running-daemon.ts'
import { hostAuthority, hostOf } from '../../../support/wing/moves/host-certificates.ts'
import type { Authority } from '../../../support/wing/moves/sign-certificates.ts'
import { ensureRequest } from '../../../support/wing/requests.ts'

const endpoint = { host: '127.0.0.1', port: 0 }
const told: string[] = []
let own: Authority
let other: Authority
let daemon: RunningDaemon

beforeAll(async () => {
  own = hostAuthority('own', ['a', 'b', 'controller'])
  other = hostAuthority('other', ['a', 'b'])
  const log = jsonLogger({ level: () => 'debug', version: '', pid: 0, sink: (line) => told.push(line) })
  const host = hostOf(own, 'b')
  endpoint.port = host.listen.port
  daemon = await runMockDaemon({ configuration: { tenants: [], host }, log })
})

afterAll(() => daemon.close())

const dialled = async (authority: Authority, as: string, name = 'b') => {
  const credentials = await readCredentials({ ...hostOf(authority, as), id: as })
  return await dialHost(endpoint, { name, credentials, signal: neverAborted })
}

describe('the endpoint for other hosts', () => {
  it('tells hosts and controllers that it serves, and lets each do what is declared', async () => {
    for (const as of ['a', 'controller']) {
      const connection = await dialled(own, as)
      const health = clientFor(HealthDefinition, connection)
      expect(await health.check({ service: 'microvm.instance.v1.InstanceService' })).toEqual({ status: 1 })
      const instances = clientFor(InstanceServiceDefinition, connection)
      await expect(instances.listInstances({})).rejects.toMatchObject({
        code: 'PERMISSION_DENIED',
        message: expect.stringMatching(`not for .* ${as}$`),
      })
      await expect(instances.getInstance({ key: 'web' })).rejects.toMatchObject({
        code: as === 'controller' ? 'NOT_FOUND' : 'PERMISSION_DENIED',
      })
      await expect(instances.ensureInstance(ensureRequest('web'))).rejects.toMatchObject({
        code: 'PERMISSION_DENIED',
      })
      await expect(
        connection.call('grpc.reflection.v1.ServerReflection', 'ServerReflectionInfo', new Uint8Array()),
      ).rejects.toMatchObject({ code: 'PERMISSION_DENIED' })
      connection.close()
    }
  })

  it('is refused where it is another host than is meant', async () => {
    await expect(dialled(own, 'a', 'c')).rejects.toMatchObject({
      code: 'PERMISSION_DENIED',
      message: expect.stringMatching(/^host c at 127.0.0.1:\d+: its certificate is refused: .*DNS:b/),
    })
  })

  it('refuses and is refused by hosts of another authority', async () => {
    await expect(dialled(other, 'a')).rejects.toMatchObject({
      code: 'PERMISSION_DENIED',
      message: expect.stringContaining('its certificate is refused: '),
    })
    const [{ pem, ...credentials }, ours] = (await Promise.all(
      [other, own].map((each) => readCredentials(hostOf(each, 'a'))),
    )) as [Awaited<ReturnType<typeof readCredentials>>, Awaited<ReturnType<typeof readCredentials>>]
    const trusting = { ...credentials, pem: { ...pem, ca: ours.pem.ca } }
    await expect(
      dialHost(endpoint, { name: 'b', credentials: trusting, signal: neverAborted }),
    ).rejects.toMatchObject({
      code: 'PERMISSION_DENIED',
      message: expect.stringContaining('refuses the certificate of a'),
    })
    expect(told.join('')).toMatch(/"reason":"certificate: [A-Z_]+"/)
  })

  it('refuses certificates that have expired, and those that name no host', async () => {
    const credentials = await readCredentials(hostOf(own, 'a'))
    own.sign('old', ['subjectAltName=DNS:old'], -1)
    own.sign('nobody', ['subjectAltName=DNS:somebody'])
    for (const [name, reason] of [
      ['old', 'CERT_HAS_EXPIRED'],
      ['nobody', 'no name of a host that is a DNS name of it'],
    ] as const) {
      const pem = own.pemOf(name)
      await expect(
        dialHost(endpoint, { name: 'b', credentials: { ...credentials, pem }, signal: neverAborted }),
      ).rejects.toMatchObject({ code: 'PERMISSION_DENIED' })
      expect(told.at(-1)).toContain(reason)
    }
  })

  it('is not opened with files that other hosts would refuse', async () => {
    const host = hostOf(own, 'b')
    const at = (name: string) => join(own.folder, name)
    const cases = [
      [{ ...host, id: 'c' }, 'the certificate of "b", want c'],
      [{ ...host, ca: at('none.pem') }, 'none.pem: ENOENT'],
      [{ ...host, cert: at('b.key') }, 'no certificate in PEM'],
      [{ ...host, key: at('a.key') }, 'not the key of '],
      [{ ...host, ca: other.ca }, 'signed by another than that of '],
    ] as const
    for (const [settings, text] of cases)
      await expect(readCredentials(settings)).rejects.toMatchObject({
        code: 'FAILED_PRECONDITION',
        message: expect.stringContaining(text),
      })
    own.sign('b.old', ['subjectAltName=DNS:b.old'], -1)
    await expect(readCredentials(hostOf(own, 'b.old'))).rejects.toThrow('b.old.pem: expired on ')
    chmodSync(at('a.key'), 0o644)
    await expect(readCredentials(hostOf(own, 'a'))).rejects.toThrow(
      'a.key: others can read it, want mode 0600',
    )
    chmodSync(at('a.key'), 0o600)
  })
})
