import { chmodSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { setImmediate as turn } from 'node:timers/promises'
import fc from 'fast-check'
import { afterAll, beforeAll, describe, expect, vi } from 'vitest'
import type { Holder } from '../../src/host/instance/holder/holder.ts'
import { startHolder } from '../../src/host/instance/holder/start-holder.ts'
import { anyBytes, CUTS, inPieces } from '../support/fuzz/bytes.ts'
import { fuzz } from '../support/fuzz/fuzz.ts'
import { connected, sh } from '../support/host/test-holder.ts'
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
})
