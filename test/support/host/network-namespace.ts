import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'

/** A new network namespace, which lasts until it is closed. The machine's own network never changes. */
export interface NetworkNamespace {
  /** The file of the namespace, for setns(2). */
  readonly path: string
  /** The words before a program's argv that run it in the namespace. */
  readonly enter: readonly string[]
  run(program: string, ...args: readonly string[]): string
  ip(words: string): string
  /** Returns the output of `ip -json -details`. */
  show<T>(words: string): T
  close(): Promise<void>
}

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
