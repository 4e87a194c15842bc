import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { promisify } from 'node:util'
import { makeNetworkNamespace, type NetworkNamespace } from '../host/network-namespace.ts'
import { endChild } from '../processes.ts'

const run = promisify(execFile)

/** Answers every HTTP request over IPv4 or IPv6 with its second argument. */
const SERVER = `
  const { createServer } = require('node:http')
  createServer((_, answer) => answer.end(process.argv[2])).listen(Number(process.argv[1]), '::', () => console.log('ready'))
`

/** The host's side of a guest's network: a namespace with tap interfaces and programs that use them. */
export interface HostNetwork {
  readonly namespace: NetworkNamespace
  serve(port: number, text: string): Promise<void>
  get(url: string): Promise<string>
  /** Sends one echo request; rejects when it is not answered. */
  ping(address: string): Promise<void>
  close(): Promise<void>
}

/** Makes tap interfaces and brings them up. Each name maps to addresses as `ip address add` takes them. */
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
    // The link is brought up first: the kernel adds the route to an IPv6 peer only with the address.
    namespace.ip(`link set ${tap} up`)
    for (const address of addresses) namespace.ip(`address add ${address} dev ${tap}`)
  }
  return {
    namespace,
    serve: async (port, text) => {
      const [program = '', ...rest] = [...namespace.enter, process.execPath, '-e', SERVER]
      const server = spawn(program, [...rest, String(port), text], { stdio: ['ignore', 'pipe', 'inherit'] })
      ends.push(() => endChild(server))
      await once(server.stdout, 'data')
    },
    // The static wget crashes with the option -T.
    get: (url) => inside('busybox', 'wget', '-q', '-O', '-', url),
    ping: async (address) => {
      await inside('busybox', 'ping', '-c', '1', '-W', '20', address)
    },
    close: async () => {
      for (const end of ends.reverse()) await end()
    },
  }
}
