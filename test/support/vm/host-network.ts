import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { promisify } from 'node:util'
import { makeNetworkNamespace, type NetworkNamespace } from '../host/network-namespace.ts'

const run = promisify(execFile)

/** Answers every HTTP request, of either family, with its second argument. */
const SERVER = `
  const { createServer } = require('node:http')
  createServer((_, answer) => answer.end(process.argv[2])).listen(Number(process.argv[1]), '::', () => console.log('ready'))
`

/** The host's side of a guest's network: a namespace with tap interfaces and programs that use them. */
export interface HostNetwork {
  readonly namespace: NetworkNamespace
  /** Serves this text on a port of both families, until the network is closed. */
  serve(port: number, text: string): Promise<void>
  /** What an HTTP server answers. */
  get(url: string): Promise<string>
  /** Rejects unless one echo request is answered. */
  ping(address: string): Promise<void>
  close(): Promise<void>
}

/** Makes tap interfaces, each with what follows its name as words behind `ip address add`; all are up. */
export async function makeHostNetwork(
  taps: Readonly<Record<string, readonly string[]>>,
): Promise<HostNetwork> {
  const namespace = await makeNetworkNamespace()
  const ends: (() => Promise<void>)[] = [namespace.close]
  const inside = async (...argv: readonly string[]) => {
    const [program = '', ...rest] = [...namespace.enter, ...argv]
    return (await run(program, rest, { timeout: 60_000 })).stdout
  }
  namespace.ip('link set lo up')
  for (const [tap, addresses] of Object.entries(taps)) {
    namespace.ip(`tuntap add dev ${tap} mode tap`)
    // Up first: the kernel makes the route to an IPv6 peer when the address comes, and not when the link does.
    namespace.ip(`link set ${tap} up`)
    for (const address of addresses) namespace.ip(`address add ${address} dev ${tap}`)
  }
  return {
    namespace,
    serve: async (port, text) => {
      const [program = '', ...rest] = [...namespace.enter, process.execPath, '-e', SERVER]
      const server = spawn(program, [...rest, String(port), text], { stdio: ['ignore', 'pipe', 'inherit'] })
      ends.push(async () => {
        const ended = once(server, 'exit')
        server.kill()
        await ended
      })
      await once(server.stdout, 'data')
    },
    // Without -T, at which the static wget crashes.
    get: (url) => inside('busybox', 'wget', '-q', '-O', '-', url),
    ping: async (address) => {
      await inside('busybox', 'ping', '-c', '1', '-W', '20', address)
    },
    close: async () => {
      for (const end of ends.reverse()) await end()
    },
  }
}
