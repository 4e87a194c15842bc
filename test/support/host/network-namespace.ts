import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'

/** A network namespace of its own, which lasts until it is closed; the machine's own network is never touched. */
export interface NetworkNamespace {
  /** Of the file that stands for it, for setns(2). */
  readonly path: string
  /** Words to put before a program's argv to run it in there. */
  readonly enter: readonly string[]
  /** Runs a program in there, and gives what it prints. */
  run(program: string, ...args: readonly string[]): string
  /** Runs `ip` in there with these words, and gives what it prints. */
  ip(words: string): string
  /** What `ip -json -details` prints. */
  show<T>(words: string): T
  close(): Promise<void>
}

/** Makes one with these links, as the words behind `ip link add`. */
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
