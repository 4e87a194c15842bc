import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'

/** A new network namespace, which lasts until it is closed; the machine's own network is never changed. */
export interface NetworkNamespace {
  /** The path of the file that refers to the namespace, for setns(2). */
  readonly path: string
  /** Words to put before a program's argv to run it in the namespace. */
  readonly enter: readonly string[]
  /** Runs a program in the namespace and returns its output. */
  run(program: string, ...args: readonly string[]): string
  /** Runs `ip` in the namespace with these words and returns its output. */
  ip(words: string): string
  /** Returns the output of `ip -json -details`. */
  show<T>(words: string): T
  close(): Promise<void>
}

/** Creates a namespace with these links, each given as the arguments of `ip link add`. */
export async function makeNetworkNamespace(...links: readonly string[]): Promise<NetworkNamespace> {
  const holder = spawn('unshare', ['--net', 'sh', '-c', 'echo ready; exec cat'], {
    stdio: ['pipe', 'pipe', 'inherit'],
  })
  await once(holder.stdout, 'data')
  const path = `/proc/${holder.pid}/ns/net`
  const enter = ['nsenter', `--net=${path}`, '--']
  const run = (...argv: readonly string[]) => {
    const [program = '', ...rest] = [...enter, ...argv]
    return execFileSync(program, rest, { encoding: 'utf8', maxBuffer: 2 ** 26 })
  }
  const namespace: NetworkNamespace = {
    path,
    enter,
    run,
    ip: (words) => run('ip', ...words.split(' ')),
    show: (words) => JSON.parse(run('ip', '-json', '-details', ...words.split(' '))),
    close: async () => {
      const ended = once(holder, 'exit')
      holder.stdin.end()
      await ended
    },
  }
  for (const link of links) namespace.ip(`link add ${link}`)
  return namespace
}
