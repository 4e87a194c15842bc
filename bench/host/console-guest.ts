import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { neverAborted } from '../../src/base/abort.ts'
import { makeTemporaryFolder, removeTemporaryFolder } from '../../src/build/temporary-folder.ts'
import { openDaemon } from '../../src/client/daemon/daemon-client.ts'
import { ChangeStateRequest_Change as Change } from '../../src/gen/microvm/instance/v1/instance.ts'
import { ConsoleIO, OOBManagementDefinition } from '../../src/gen/vm.ts'
import { findHolder } from '../../src/host/instance/holder/start-holder.ts'
import { endChild } from '../../test/support/processes.ts'
import { startDaemonProcess } from '../../test/support/wing/daemon-process.ts'
import { CONSOLE_ONLY, ensureRequest } from '../../test/support/wing/requests.ts'
import { tinyGuest } from '../../test/support/wing/tiny-guest.ts'
import { median, report } from '../support/figure.ts'

/** 200 KB of a guest that writes to its serial port for ever, to a caller of OOBManagement.Console, against a client of the holder's ring. */
const ROUNDS = 5
const BYTES = 200_000
const KEPT_BYTES = 64 << 10

const folder = makeTemporaryFolder('/tmp')
const state = join(folder, 'state')
const daemon = await startDaemonProcess(state)
const client = await openDaemon(join(state, 'admin.sock'), neverAborted)
try {
  const specification = { ...CONSOLE_ONLY, board: { kernel: tinyGuest(folder, 'flood') } }
  await client.calls.ensureInstance(ensureRequest('web', { specification }))
  await client.calls.changeState({ key: 'web', change: Change.RUN, graceMs: 0 })
  const [values, floors]: [number[], number[]] = [[], []]
  for (let round = 0; round < ROUNDS; round++) {
    floors.push(await ringMs())
    values.push(await callMs())
  }
  const figure = { value: median(values), floor: median(floors), limit: 1.3 }
  report({ figure: 'console of a guest by OOBManagement, 200 KB', unit: 'ms', ...figure })
} finally {
  await client.calls.remove({ key: 'web' })
  client.close()
  await endChild(daemon)
  removeTemporaryFolder(folder)
}

async function ringMs(): Promise<number> {
  const [own = ''] = readdirSync(join(state, 'instances'))
  const holder = await findHolder(join(state, 'instances', own))
  if (holder === undefined) throw new Error('the machine has no holder')
  const [ring] = await holder.rings()
  const { stream } = await holder.attach(0, ring?.end ?? 0n)
  const ms = await readMs(stream)
  stream.destroy()
  holder.disconnect()
  return ms
}

async function callMs(): Promise<number> {
  const { fullName, methods } = OOBManagementDefinition
  const call = client.stream(fullName, methods.console.name, { instance: 'web' })
  const ms = await readMs(dataOf(call.answers))
  call.cancel()
  return ms
}

async function* dataOf(answers: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  for await (const answer of answers) yield ConsoleIO.decode(answer).data
}

/** After as many bytes as a caller gets of those that were there before. */
async function readMs(stream: AsyncIterable<Uint8Array>): Promise<number> {
  let begin: number | undefined
  let total = 0
  for await (const { length } of stream) {
    total += length
    if (total >= KEPT_BYTES) begin ??= performance.now()
    if (total >= KEPT_BYTES + BYTES) break
  }
  return performance.now() - (begin ?? 0)
}
