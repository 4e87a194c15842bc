import { text } from 'node:stream/consumers'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { neverAborted } from '../../../../../src/base/abort.ts'
import { agentStream } from '../../../../../src/client/daemon/connect-machine.ts'
import type { PassedOn } from '../../../../../src/host/instance/instances.ts'
import { readCredentials } from '../../../../../src/host/tls/credentials.ts'
import { dialHost } from '../../../../../src/host/tls/dial-host.ts'
import { MovingHosts } from '../../../../support/wing/moves/moving-hosts.ts'
import { ADMIN } from '../../../../support/wing/requests.ts'

/** What the host says that has the machine, which has no agent. */
const HERE = {
  code: 'FAILED_PRECONDITION',
  message: 'instance web: no vsock, and no tap of its own whose addresses its VM metadata has',
}

async function* nothing(): AsyncGenerator<Uint8Array> {}

describe('callers of the agent', { timeout: 180_000 }, () => {
  let hosts: MovingHosts
  beforeEach(() => {
    hosts = new MovingHosts(['a', 'b', 'c'])
  })
  afterEach(() => hosts.end())

  const reach = async (id: string, passed?: PassedOn) => {
    const { instances } = await hosts.open(id)
    return await instances.connectAgent('web', nothing(), ADMIN, passed)[Symbol.asyncIterator]().next()
  }
  const reachFrom = async (from: string, to: string, tenant = '') => {
    const settings = hosts.host(from).settings
    const credentials = await readCredentials({ ...settings, id: from })
    const { listen } = hosts.host(to).settings
    const connection = await dialHost(listen, { name: to, credentials, signal: neverAborted })
    return await text(await agentStream(connection, 'web', { hosts: 1, tenant }))
  }

  it('are passed on by the hosts that the machine has left, and taken from those alone', async () => {
    await hosts.make('a')
    await hosts.move('a', 'b')
    await hosts.move('b', 'c')
    for (const id of ['a', 'b', 'c']) await expect(reach(id), id).rejects.toMatchObject(HERE)
    await expect(reachFrom('a', 'c')).rejects.toMatchObject({
      ...{ code: 'PERMISSION_DENIED', message: 'instance web: its machine has not come from host a' },
    })
    await expect(reachFrom('c', 'b')).rejects.toMatchObject({ code: 'PERMISSION_DENIED' })
    // Another's machine of the same name has come from there.
    const notFound = { code: 'NOT_FOUND', message: 'instance web: not found' }
    for (const [from, to] of [
      ['b', 'c'],
      ['a', 'b'],
    ] as const)
      await expect(reachFrom(from, to, 'other')).rejects.toMatchObject(notFound)
    await hosts.move('c', 'a')
    for (const id of ['b', 'c', 'a']) await expect(reach(id), id).rejects.toMatchObject(HERE)
    // The hosts that it has left before its last stay still have callers.
    await hosts.move('a', 'b')
    for (const id of ['a', 'c', 'b']) await expect(reach(id), id).rejects.toMatchObject(HERE)
    await expect(reachFrom('a', 'b')).rejects.toMatchObject(HERE)
    await expect(reach('c', { host: 'b', hosts: 16 })).rejects.toMatchObject({
      ...{ code: 'FAILED_PRECONDITION', message: 'instance web: 16 hosts have passed the caller on' },
    })
  })

  it('are told that the machine is moving where it is going, and where it is when that host is away', async () => {
    await hosts.make('a')
    let told: unknown
    hosts.host('b').atStep = async (_, step) => {
      if (step === 'memory') told = await reach('b').catch((error) => error)
    }
    await hosts.move('a', 'b')
    expect(told).toMatchObject({
      ...{
        code: 'ABORTED',
        message: 'instance web: the machine is moving to another host',
        reason: 'moving',
      },
    })
    await hosts.leave('b')
    const { endpoint } = hosts.controller.hosts.get('b') ?? {}
    await expect(reach('a')).rejects.toMatchObject({
      code: 'UNAVAILABLE',
      message: expect.stringContaining(
        `instance web: not found: its machine runs on host b at ${endpoint}: `,
      ),
    })
  })
})
