import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { connect } from 'node:net'
import { endChild } from '../../../test/support/processes.ts'
import { benchEnvironment } from '../figure.ts'

const REQUEST_BYTES = 60

const SERVER = `
const [path, bytes] = process.argv.slice(1)
const answer = Buffer.alloc(Number(bytes))
require('node:net').createServer((socket) => socket.on('data', () => socket.write(answer))).listen(path, () => console.log('up'))
`

/** The milliseconds of a bare Node program for `count` answers of `bytes`, one at a time: the floor for such reads. */
export async function bareAnswersMs(path: string, count: number, bytes: number): Promise<number> {
  const server = spawn(process.execPath, ['-e', SERVER, path, String(bytes)], {
    stdio: ['ignore', 'pipe', 'inherit'],
    env: benchEnvironment(),
  })
  try {
    await once(server.stdout, 'data')
    const socket = connect(path)
    const request = Buffer.alloc(REQUEST_BYTES)
    const begin = performance.now()
    for (let answers = 0; answers < count; answers++) {
      socket.write(request)
      for (let missing = bytes; missing > 0; ) {
        const [chunk]: Buffer[] = await once(socket, 'data')
        missing -= chunk?.length ?? 0
      }
    }
    const elapsed = performance.now() - begin
    socket.destroy()
    return elapsed
  } finally {
    await endChild(server)
  }
}
