import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { createServer } from 'node:net'
import { join } from 'node:path'
import type { Endpoint } from '../../../../src/host/tls/endpoint.ts'
import { endChild, hasLogged } from '../../processes.ts'
import { debianPrograms } from '../debian-programs.ts'

/** One member of a real etcd, on loopback. */
export interface EtcdMember {
  readonly endpoint: Endpoint
  /** Sends a signal; SIGKILL ends the process, and `start` starts it on the same data. */
  signal(name: NodeJS.Signals): Promise<void>
  start(): Promise<void>
}

export interface Etcd {
  readonly members: readonly EtcdMember[]
  readonly endpoints: readonly Endpoint[]
  /** Kills the members. */
  end(): Promise<void>
}

/** Starts members on free ports, with their data below `folder`. They end with this process at the latest. */
export async function startEtcd(
  folder: string,
  {
    count = 1,
    words = [],
    enter = [],
  }: {
    readonly count?: number
    readonly words?: readonly string[]
    /** What the members are started by. */
    readonly enter?: readonly string[]
  } = {},
): Promise<Etcd> {
  const program = join(await debianPrograms('etcd-server'), 'etcd')
  const ports = await freePorts(2 * count)
  const plans = Array.from({ length: count }, (_, index) => ({
    name: `m${index}`,
    client: ports[2 * index] ?? 0,
    peer: ports[2 * index + 1] ?? 0,
  }))
  const cluster = plans.map(({ name, peer }) => `${name}=${url(peer)}`).join(',')
  const members = plans.map((plan) => new Member(program, folder, { plan, cluster, words, enter }))
  await Promise.all(members.map((member) => member.start()))
  return {
    members,
    endpoints: members.map(({ endpoint }) => endpoint),
    end: async () => {
      await Promise.all(members.map((member) => member.signal('SIGKILL')))
    },
  }
}

class Member implements EtcdMember {
  readonly endpoint: Endpoint
  readonly #argv: readonly string[]
  #process: ChildProcess | undefined

  constructor(
    program: string,
    folder: string,
    {
      cluster,
      plan: { client, name, peer },
      words,
      enter,
    }: {
      readonly plan: { readonly name: string; readonly client: number; readonly peer: number }
      readonly cluster: string
      readonly words: readonly string[]
      readonly enter: readonly string[]
    },
  ) {
    this.endpoint = { host: '127.0.0.1', port: client }
    const clients = ['--listen-client-urls', url(client), '--advertise-client-urls', url(client)]
    const peers = ['--listen-peer-urls', url(peer), '--initial-advertise-peer-urls', url(peer)]
    const own = ['--name', name, '--data-dir', join(folder, name), '--initial-cluster', cluster]
    const times = ['--heartbeat-interval', '50', '--election-timeout', '500']
    // It ends with this process at the latest.
    const before = [...enter, 'setpriv', '--pdeathsig', 'KILL']
    this.#argv = [...before, program, ...own, ...clients, ...peers, ...times, ...words]
  }

  async start(): Promise<void> {
    const [command = '', ...words] = this.#argv
    const started = spawn(command, words, { stdio: ['ignore', 'ignore', 'pipe'] })
    this.#process = started
    await hasLogged(started, 'ready to serve client requests', 'etcd')
  }

  async signal(name: NodeJS.Signals): Promise<void> {
    if (this.#process === undefined) return
    if (name === 'SIGKILL') await endChild(this.#process, name)
    else this.#process.kill(name)
  }
}

function url(port: number): string {
  return `http://127.0.0.1:${port}`
}

/** Ports of loopback on which nothing listens at present. */
export async function freePorts(count: number): Promise<readonly number[]> {
  const servers = Array.from({ length: count }, () => createServer().listen(0, '127.0.0.1'))
  await Promise.all(servers.map((server) => once(server, 'listening')))
  const ports = servers.map((server) => {
    const address = server.address()
    return typeof address === 'object' && address !== null ? address.port : 0
  })
  await Promise.all(servers.map((server) => once(server.close(), 'close')))
  return ports
}
