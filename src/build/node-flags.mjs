/** With Maglev a process may hang at its exit (nodejs/node issue 54918). */
const ALL = ['--no-maglev']

/**
 * V8's memory reducer would wake an idle daemon every few seconds. With a small new space, V8 finds the buffers of a stream
 * without a look at the whole heap, and keeps less memory. A daemon that serves lets V8 optimize (`src/host/service/daemon.ts`):
 * one that optimized while it starts would keep 7 MiB of the compiler.
 */
const DAEMON = ['--no-memory-reducer', '--max-semi-space-size=1', '--no-opt']

/**
 * A controller keeps some KiB of each lease, and V8 would let such a heap grow to several times its size. With these, it grows by
 * a third, and garbage is collected from half of that on. A single thread beside the main one does what V8 does at the same time.
 * Without the optimizing compiler it takes 8 MiB less, and a third more CPU time for a call, which waits for etcd anyway.
 */
const CONTROLLER = [
  '--no-memory-reducer',
  '--optimize-for-size',
  '--no-opt',
  '--incremental-marking-hard-trigger=50',
  '--v8-pool-size=1',
]

/** @type {ReadonlyMap<string, readonly string[]>} */
const OF_SERVERS = new Map([
  ['daemon', DAEMON],
  ['hypervisor', DAEMON],
  ['controller', CONTROLLER],
])

/** The commands of `./microvm` that serve. */
export const SERVERS = [...OF_SERVERS.keys()]

/**
 * The flags of Node with which a command of `./microvm` runs.
 * @param {string} [command]
 * @returns {readonly string[]}
 */
export function nodeFlags(command = '') {
  return [...ALL, ...(OF_SERVERS.get(command) ?? [])]
}
