// Opens the registry of a folder, prints `found N` or what is wrong with its rows, then commits until it is killed. Prints
// `done N` for each commit that is acknowledged. Commit N stores a row in two tables and removes those of an older one.
import { openRegistry } from '../../../../src/host/instance/registry/open-registry.ts'
import type { Change } from '../../../../src/host/instance/registry/registry.ts'

const KEPT = 20

const registry = await openRegistry(process.argv[2] ?? '')
const [steps, streams] = [await registry.load('steps'), await registry.load('streams')]
const last = Math.max(0, ...[...steps.keys()].map(Number))
const wanted = Array.from({ length: Math.min(last, KEPT) }, (_, index) => String(last - index))
const isWhole =
  [steps, streams].every((rows) => rows.size === wanted.length) &&
  wanted.every((key) => isPayload(steps.get(key), key) && isPayload(streams.get(key), key))
say(isWhole ? `found ${last}` : `wrong: steps ${[...steps.keys()]}; streams ${[...streams.keys()]}`)

for (let next = last + 1; ; ) {
  const count = 1 + (next % 4)
  const commits = Array.from({ length: count }, (_, index) => commit(next + index))
  await Promise.all(commits)
  next += count
}

async function commit(number: number): Promise<void> {
  const store = { key: String(number), payload: payloadOf(String(number)) }
  const remove = { key: String(number - KEPT), payload: undefined }
  const changes = [store, remove].flatMap((change): Change[] => [
    { table: 'steps', ...change },
    { table: 'streams', ...change },
  ])
  await registry.commit(changes)
  say(`done ${number}`)
}

function payloadOf(key: string): Uint8Array {
  return Buffer.alloc(100 + (Number(key) % 7) * 1500, key)
}

function isPayload(payload: Uint8Array | undefined, key: string): boolean {
  return payload !== undefined && Buffer.compare(payload, payloadOf(key)) === 0
}

/** Blocks while the reader of stdout is slow. */
function say(line: string): void {
  process.stdout.write(`${line}\n`)
}
