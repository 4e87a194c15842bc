import { spawnSync } from 'node:child_process'
import { join } from 'node:path'
import { benchEnvironment } from './support/figure.ts'

/** `npm run bench [-- NAME…]`: runs the named benchmarks, by default all, one after the other. */
const NAMES = [
  'agent-start',
  'rpc',
  'rpc-under-load',
  'exec',
  'exec-crowd',
  'container-life',
  'shared-storage',
  'hot-plug',
  'idle',
  'port-stdout',
  'read-stdout',
  'exec-leak',
  'network',
  'metadata',
  'vm-boot',
  'guest-memory',
]

const wanted = process.argv.slice(2)
const unknown = wanted.find((name) => !NAMES.includes(name))
if (unknown !== undefined) {
  process.stderr.write(`bench: there is no ${unknown}; there are ${NAMES.join(', ')}\n`)
  process.exit(2)
}
for (const name of wanted.length > 0 ? wanted : NAMES) {
  const script = join(import.meta.dirname, `${name}.ts`)
  const { status } = spawnSync(process.execPath, [script], { stdio: 'inherit', env: benchEnvironment() })
  if (status !== 0) process.exitCode = 1
}
