import { spawnSync } from 'node:child_process'
import { basename, join } from 'node:path'
import { benchEnvironment } from './support/figure.ts'

/** `npm run bench [-- NAME…]`: runs the named benchmarks, by default all, one after the other. */
const PATHS = [
  ...['agent/agent-start', 'agent/rpc', 'agent/rpc-through-broker', 'agent/rpc-under-load', 'agent/policy'],
  ...['agent/network', 'agent/metadata', 'agent/agent-death', 'agent/supervisor-memory', 'agent/ctl-start'],
  ...['containers/exec', 'containers/exec-crowd', 'containers/container-life', 'containers/shared-storage'],
  ...['containers/broker-containers', 'stdio/port-stdout', 'stdio/port-relays', 'stdio/read-stdout'],
  ...['stdio/copy-file', 'containers/exec-leak'],
  'containers/metrics',
  ...['guest/hot-plug', 'guest/idle', 'guest/vm-boot', 'guest/guest-memory', 'guest/mem-agent'],
]
const SCRIPTS = new Map(PATHS.map((path) => [basename(path), join(import.meta.dirname, `${path}.ts`)]))

const wanted = process.argv.slice(2)
const unknown = wanted.find((name) => !SCRIPTS.has(name))
if (unknown !== undefined) {
  process.stderr.write(`bench: ${unknown}: not found, want one of ${[...SCRIPTS.keys()].join(', ')}\n`)
  process.exit(2)
}
for (const [name, script] of SCRIPTS) {
  if (wanted.length > 0 && !wanted.includes(name)) continue
  const { status } = spawnSync(process.execPath, [script], { stdio: 'inherit', env: benchEnvironment() })
  if (status !== 0) process.exitCode = 1
}
