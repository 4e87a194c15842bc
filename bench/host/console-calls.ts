import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { neverAborted } from '../../src/base/abort.ts'
import { writeMicrovm } from '../../src/build/microvm.ts'
import { buildHolder } from '../../src/build/native.ts'
import { makeTemporaryFolder, removeTemporaryFolder } from '../../src/build/temporary-folder.ts'
import { connectSocket } from '../../src/client/connection/connect-socket.ts'
import { grpcConnection } from '../../src/client/connection/grpc-connection.ts'
import { openDaemon } from '../../src/client/daemon/daemon-client.ts'
import { ConsoleIO, OOBManagementDefinition } from '../../src/gen/vm.ts'
import { startHolder } from '../../src/host/instance/holder/start-holder.ts'
import { standInQemu } from '../../test/support/wing/fakes/stand-in-qemu.ts'
import { CONSOLE_ONLY, ensureRequest } from '../../test/support/wing/requests.ts'
import { tinyGuest } from '../../test/support/wing/tiny-guest.ts'
import { benchEnvironment, median, report } from '../support/figure.ts'

/**
 * 100 MB of a console's output to a caller of OOBManagement.Console, against a client of the holder's ring, and (`bareStream`)
 * as answers of a bare grpc-js server that has them already.
 */
const ROUNDS = 7
const BYTES = 100_000_000

const folder = makeTemporaryFolder('/tmp')
const state = join(folder, 'state')
const bin = standInQemu(folder)
const env = { MICROVM_ACCEL: 'tcg', PATH: `${bin}:${benchEnvironment().PATH}` }
const microvm = await writeMicrovm(join(folder, 'dist'))
const daemon = spawn(microvm, ['daemon', '--state', state], { stdio: ['ignore', 'ignore', 'pipe'], env })
for await (const chunk of daemon.stderr.iterator({ destroyOnReturn: false }))
  if (String(chunk).includes('"msg":"serving"')) break
daemon.stderr.resume()
mkdirSync(join(folder, 'bare'))
const bareSocket = join(folder, 'bare.sock')
const bareServer = spawn(
  process.execPath,
  [join(import.meta.dirname, '../support/bare/bare-stream-server.ts'), bareSocket, `${BYTES}`],
  { stdio: ['ignore', 'pipe', 'inherit'] },
)
await once(bareServer.stdout, 'data')
const holder = await startHolder(join(folder, 'bare'), await buildHolder())
const client = await openDaemon(join(state, 'admin.sock'), neverAborted)
try {
  const specification = { ...CONSOLE_ONLY, board: { kernel: tinyGuest(folder, 'idle') } }
  await client.calls.ensureInstance(ensureRequest('web', { specification }))
  await holder.start({
    name: 'qemu',
    output: 'console',
    argv: [join(bin, 'qemu-system-x86_64'), ',path=qmp'],
  })
  const [values, floors, bare]: [number[], number[], number[]] = [[], [], []]
  for (let round = 0; round < ROUNDS; round++) {
    const floor = await ringMs()
    const { ms, lost } = await callMs()
    if (lost > 0) process.stderr.write(`left out: a round that lost ${lost} bytes\n`)
    if (lost > 0) continue
    floors.push(floor)
    bare.push(await bareMs())
    values.push(ms)
  }
  const phases = { bareStream: median(bare) }
  const figure = { value: median(values), floor: median(floors), limit: 1.3, phases }
  report({ figure: 'console by OOBManagement, 100 MB', unit: 'ms', ...figure })
} finally {
  await client.calls.remove({ key: 'web' })
  client.close()
  await holder.end()
  bareServer.kill()
  const exited = once(daemon, 'exit')
  daemon.kill()
  await exited
  removeTemporaryFolder(folder)
}

async function ringMs(): Promise<number> {
  const [ring] = await holder.rings()
  const { stream } = await holder.attach(0, ring?.end ?? 0n)
  const begin = performance.now()
  stream.write(`print ${BYTES}\n`)
  let total = 0
  for await (const chunk of stream) {
    total += chunk.length
    if (total >= BYTES) break
  }
  return performance.now() - begin
}

async function bareMs(): Promise<number> {
  const connection = grpcConnection(await connectSocket({ path: bareSocket }, neverAborted))
  await connection.greeted
  const begin = performance.now()
  const call = connection.stream('bare', 'Stream')
  await call.send(new Uint8Array(0))
  call.end()
  let total = 0
  for await (const message of call.answers) total += message.length
  const ms = performance.now() - begin
  connection.close()
  if (total !== BYTES) throw new Error(`${total} bytes`)
  return ms
}

/** On a busy machine the caller may fall behind. */
async function callMs(): Promise<{ readonly ms: number; readonly lost: number }> {
  const { fullName, methods } = OOBManagementDefinition
  const call = client.stream(fullName, methods.console.name, { instance: 'web' })
  const type = (text: string) => call.send(ConsoleIO.encode({ data: Buffer.from(text) }).finish())
  const next = async () => ConsoleIO.decode((await call.answers.next()).value ?? new Uint8Array()).data
  await type('hello\n')
  while (!Buffer.from(await next()).includes('hello'));
  const begin = performance.now()
  await type(`print ${BYTES}\n`)
  let [total, lost] = [0, 0]
  while (total + lost < BYTES) {
    const data = await next()
    const marker = data.length < 100 && /microvm: (\d+) bytes/.exec(Buffer.from(data).toString())
    if (marker) lost += Number(marker[1])
    else total += data.length
  }
  call.cancel()
  return { ms: performance.now() - begin, lost }
}
