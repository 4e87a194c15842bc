import { chmodSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { setImmediate as turn } from 'node:timers/promises'
import fc from 'fast-check'
import { afterAll, beforeAll, describe, expect, vi } from 'vitest'
import type { Holder } from '../../src/host/instance/holder/holder.ts'
import { startHolder } from '../../src/host/instance/holder/start-holder.ts'
import { loadAddon } from '../../src/host/migration/bulk/sockets.ts'
import { unwrap } from '../../src/os/errors.ts'
import type { Native } from '../../src/os/native.ts'
import { SocketHandles } from '../../src/os/sockets/socket-handles.ts'
import { anyBytes, CUTS, inPieces, mutated } from '../support/fuzz/bytes.ts'
import { fuzz } from '../support/fuzz/fuzz.ts'
import { connected, readAll, sh } from '../support/host/test-holder.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'
import { buildSanitizedHolder } from '../support/vminit/compiled.ts'

const BUILD_MS = 240_000
const WAIT = { timeout: 20_000, interval: 5 }

/** A child that no changed line names. */
const CHILD = 'that-stays'
const ASK_CHILD = Buffer.from(`kill ${CHILD} 0\n`)

/** Their changed forms start no program of this machine, and make no file. */
const LINES = ['start b log /none/b a%20b %C3%BC', 'kill b 9', 'children', 'rings', 'watch', 'relay'].concat(
  ['attach 0 0', 'attach 1 99', 'close 1', 'close 18446744073709551615', 'attach 4294967295 7'],
  [`start b console ${'/none '.repeat(3000)}`],
)
const LISTEN = fc.nat(9).map((number) => `listen port ${number}`)

const SENT = fc
  .array(
    fc.oneof(
      { weight: 4, arbitrary: fc.constantFrom(...LINES).map((line) => Buffer.from(`${line}\n`)) },
      { weight: 1, arbitrary: LISTEN.map((line) => Buffer.from(`\n${line}\n`)) },
      { weight: 1, arbitrary: fc.constant(ASK_CHILD) },
      { weight: 4, arbitrary: anyBytes(LINES.map((line) => Buffer.from(`${line}\n`))) },
    ),
    { minLength: 1, maxLength: 8 },
  )
  .map((parts) => Buffer.concat(parts))

const parts = loadAddon().then((native) => [native, new SocketHandles(native)] as const)

let folder: string
let program: string
let holder: Holder
/** The number of the holder's open descriptors without a client. */
let files: number

function openFiles(): number {
  return readdirSync(`/proc/${holder.pid}/fd`).length
}

async function start(): Promise<void> {
  folder = temporaryFolder()
  holder = await startHolder(folder, program)
  await holder.start(sh(CHILD, 'console', 'seq 1 100000; exec cat > /dev/null'))
  await vi.waitFor(async () => expect((await holder.rings())[0]?.end).toBe(588_895n), WAIT)
  files = openFiles()
}

/** A changed line may close the console of the child, which ends then. */
async function hasConsole(): Promise<boolean> {
  return (await holder.rings()).some(({ number }) => number === 0)
}

async function stop(): Promise<void> {
  for (const { number } of await holder.rings()) if (number !== 0) await holder.closeRing(number)
  if (await hasConsole()) await vi.waitFor(() => expect(openFiles()).toBe(files), WAIT)
  await holder.end()
  const reports = readdirSync(folder).filter((name) => name.startsWith('report'))
  expect(reports.map((name) => readFileSync(join(folder, name), 'utf8'))).toEqual([])
}

/** What a server of NBD sends: its greeting, that TLS begins, and records. */
const RELAYED = [
  Buffer.from('NBDMAGICIHAVEOPT\0\x03', 'latin1'),
  Buffer.from('0003e889045565a9000000050000000100000000', 'hex'),
  ...[1, 69, 443].map((length) =>
    Buffer.concat([Buffer.from([23, 3, 3, length >> 8, length & 255]), Buffer.alloc(length, length)]),
  ),
]
/** Of the longest one. */
const RECORD_BYTES = 5 + 16_640

async function relay(native: Native, handles: SocketHandles) {
  const [wire, far] = unwrap('open', 'a socket pair', native.socketPair())
  const [near, own] = unwrap('open', 'a socket pair', native.socketPair())
  await holder.relay({ near, wire }, native)
  for (const fd of [near, wire]) native.close(fd)
  const [server, qemu] = [handles.socket(far), handles.socket(own)]
  // The holder closes it with what it has not read.
  for (const socket of [server, qemu]) socket.on('error', () => {})
  return { server, qemu }
}

beforeAll(async () => {
  const sanitized = await buildSanitizedHolder()
  program = join(temporaryFolder(), 'holder')
  writeFileSync(program, `#!/bin/sh\nASAN_OPTIONS=log_path=report exec ${sanitized} "$@"\n`)
  chmodSync(program, 0o755)
  await start()
}, BUILD_MS)
afterAll(stop)

describe('the holder', () => {
  fuzz('holder/lines', {
    share: 8,
    batch: 200,
    afterBatch: async () => {
      await stop()
      await start()
    },
    input: fc.record({ bytes: SENT, cuts: CUTS, turns: fc.nat(10), reads: fc.boolean() }),
    show: ({ bytes, cuts, turns, reads }) =>
      `${turns} turns, ${reads ? 'reads' : 'does not read'}, cut at ${cuts.join(', ')}: ${bytes.toString('hex')}`,
    run: async ({ bytes, cuts, turns, reads }) => {
      const client = await connected(join(folder, 'holder.sock'))
      if (reads) client.resume()
      for (const piece of inPieces(bytes, cuts)) {
        client.write(piece)
        await turn()
      }
      for (let count = 0; count < turns; count++) await turn()
      client.destroy()
      const [child] = await holder.children()
      expect(child?.name).toBe(CHILD)
      if (await hasConsole()) return expect(child?.exit).toBeUndefined()
      await stop()
      await start()
    },
  })

  fuzz('holder/relay', {
    share: 4,
    batch: 200,
    afterBatch: async () => {
      await vi.waitFor(() => expect(openFiles()).toBe(files), WAIT)
    },
    input: fc.record({ bytes: mutated([Buffer.concat(RELAYED)]), cuts: CUTS, reads: fc.boolean() }),
    show: ({ bytes, cuts, reads }) => `cut at ${cuts.join(', ')}, ${reads}: ${bytes.toString('hex')}`,
    run: async ({ bytes, cuts, reads }) => {
      const { server, qemu } = await relay(...(await parts))
      const got = reads ? readAll(qemu) : undefined
      for (const piece of inPieces(bytes, cuts)) {
        server.write(piece)
        await turn()
      }
      server.end()
      // Nothing of it is changed, and no more than one record is left out.
      const passed = await got
      qemu.destroy()
      if (passed === undefined) return
      expect(passed.equals(bytes.subarray(0, passed.length))).toBe(true)
      expect(bytes.length - passed.length).toBeLessThan(RECORD_BYTES)
    },
  })
})
