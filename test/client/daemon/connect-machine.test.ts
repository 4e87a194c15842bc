import { text } from 'node:stream/consumers'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { neverAborted } from '../../../src/base/abort.ts'
import { connectMachine } from '../../../src/client/daemon/connect-machine.ts'
import { type RunningDaemon, runMockDaemon } from '../../support/host-wing/running-daemon.ts'
import { ensureRequest } from '../../support/wing/requests.ts'

describe('connectMachine', () => {
  let daemon: RunningDaemon
  beforeEach(async () => {
    daemon = await runMockDaemon()
    await daemon.client().instances.ensureInstance(ensureRequest('web'))
  })
  afterEach(() => daemon.close())

  const connect = (key: string) => connectMachine(daemon.daemon.socket, key, neverAborted)

  it('carries bytes in both directions, also more than one message holds', async () => {
    const stream = await connect('web')
    const sent = 'guest '.repeat(100_000)
    stream.end(sent)
    expect(await text(stream)).toBe(sent)
  })

  it('fails its reader when there is no such instance', async () => {
    const stream = await connect('db')
    await expect(text(stream)).rejects.toMatchObject({ code: 'NOT_FOUND', message: 'instance db: not found' })
  })

  it('ends with the daemon', async () => {
    const stream = await connect('web')
    const failure = expect(text(stream)).rejects.toMatchObject({ code: 'UNAVAILABLE' })
    await daemon.close()
    await failure
  })
})
