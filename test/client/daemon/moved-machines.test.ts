import { once } from 'node:events'
import { createServer } from 'node:http2'
import { join } from 'node:path'
import { expect, it, onTestFinished } from 'vitest'
import { neverAborted } from '../../../src/base/abort.ts'
import { runsInDaemon } from '../../../src/client/daemon/daemon-machines.ts'
import { dialSession } from '../../../src/client/open-session.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

/** The socket of a daemon that refuses each call. */
async function refusing(status: number, message: string, reason?: string): Promise<string> {
  const socket = join(temporaryFolder(), 'admin.sock')
  const server = createServer()
  server.on('stream', (stream) => {
    stream.on('error', () => {})
    const headers = { ':status': 200, 'content-type': 'application/grpc' }
    const trailers = { 'grpc-status': `${status}`, 'grpc-message': message, 'microvm-reason': reason }
    stream.respond({ ...headers, ...trailers }, { endStream: true })
  })
  await once(server.listen(socket), 'listening')
  onTestFinished(() => void server.close())
  return socket
}

it.each(['ttrpc', 'grpc'] as const)(
  'a session by %s is refused in the words of the daemon',
  async (protocol) => {
    const message = 'instance web: the machine is moving to another host'
    const socket = await refusing(10, message, 'moving')
    const address = { kind: 'instance', socket, key: 'web' } as const
    const dialled = dialSession({ address, protocol, signal: neverAborted })
    await expect(dialled).rejects.toMatchObject({ code: 'ABORTED', message, reason: 'moving' })
  },
)

it('a machine that has moved is reached by its old daemon, and one that never was there is not', async () => {
  const message = 'instance web: not found: its machine runs on host b at 192.0.2.2:7443'
  const moved = await refusing(5, message, 'moved')
  expect(await runsInDaemon(moved, 'web', neverAborted)).toBe(true)
  const none = await refusing(5, message)
  expect(await runsInDaemon(none, 'web', neverAborted)).toBeUndefined()
})
