import type { ChildProcess } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect } from 'vitest'
import { makeNetworkNamespace, type NetworkNamespace } from '../../host/network-namespace.ts'
import { microvm } from '../../microvm/run-microvm.ts'
import { endChild } from '../../processes.ts'
import { temporaryFolder } from '../../temporary-folder.ts'
import { startControllerProcess } from '../controller/controller-process.ts'
import { type Etcd, startEtcd } from '../controller/etcd.ts'
import { startDaemonProcess } from '../daemon-process.ts'
import { leftovers } from '../leftovers.ts'
import { hostAuthority } from './host-certificates.ts'
import type { Authority } from './sign-certificates.ts'

const PLACES = ['a', 'b', 'c'] as const
type Place = (typeof PLACES)[number]
type HostId = Exclude<Place, 'c'>
const ADDRESS: Readonly<Record<Place, string>> = { a: '10.0.0.1', b: '10.0.0.2', c: '10.0.0.3' }

/**
 * Hosts a and b, each a daemon in a network namespace with the bridge `br0`; links join the bridges, and that of a with namespace c,
 * which has the controller and etcd. All are processes.
 */
export interface BridgedHosts {
  readonly namespaces: Readonly<Record<Place, NetworkNamespace>>
  /** Runs a command of `./microvm` for a daemon, and returns what it prints. Throws when it fails. */
  run(host: HostId, ...words: readonly string[]): Promise<string>
  socketOf(host: HostId): string
  /** Ends all. Nothing of the machines may be left. */
  end(): Promise<void>
}

export async function startBridgedHosts(): Promise<BridgedHosts> {
  const [a, b, c] = await Promise.all([
    makeNetworkNamespace('br0 type bridge'),
    makeNetworkNamespace('br0 type bridge'),
    makeNetworkNamespace(),
  ])
  const namespaces = { a, b, c }
  link(a, { link: 'to-b', master: 'br0' }, b, { link: 'to-a', master: 'br0' })
  link(a, { link: 'to-c', master: 'br0' }, c, { link: 'eth0' })
  const own = { a: 'br0', b: 'br0', c: 'eth0' }
  for (const place of PLACES) {
    namespaces[place].ip(`address add ${ADDRESS[place]}/24 dev ${own[place]}`)
    for (const name of ['lo', own[place]]) namespaces[place].ip(`link set ${name} up`)
  }
  const authority = hostAuthority('hosts', ['a', 'b', 'controller'])
  const etcd = await startEtcd(temporaryFolder(), { enter: c.enter })
  const at = (port: number) => ({ host: ADDRESS.c, port })
  const controller = await startControllerProcess({
    ...{ authority, etcd: etcd.endpoints, enter: c.enter, listen: at(7440), metrics: at(7441) },
  })
  const states = { a: temporaryFolder(), b: temporaryFolder() }
  const daemons = await Promise.all(
    (['a', 'b'] as const).map((id) =>
      startHost(id, states[id], {
        authority,
        enter: [...namespaces[id].enter, 'setpriv', '--pdeathsig', 'KILL'],
      }),
    ),
  )
  const socketOf = (host: HostId) => join(states[host], 'admin.sock')
  const run = async (host: HostId, ...words: readonly string[]) => {
    const { status, stderr, stdout } = await microvm([...words, '--socket', socketOf(host)])
    expect([status, stderr.replace(/^microvm: web: .*\n/gm, '')], words.join(' ')).toEqual([0, ''])
    return stdout
  }
  return {
    ...{ namespaces, run, socketOf },
    end: () => endAll({ daemons, controller, etcd, states, namespaces }),
  }
}

interface End {
  readonly link: string
  readonly master?: string
}

/** Joins two namespaces by a link. */
function link(one: NetworkNamespace, here: End, other: NetworkNamespace, there: End): void {
  const [, , pid = ''] = other.path.split('/')
  one.ip(`link add ${here.link} type veth peer name ${there.link} netns ${pid}`)
  for (const [namespace, { link: name, master }] of [
    [one, here],
    [other, there],
  ] as const)
    namespace.ip(`link set ${name}${master === undefined ? '' : ` master ${master}`} up`)
}

async function startHost(
  id: HostId,
  state: string,
  { authority, enter }: { readonly authority: Authority; readonly enter: readonly string[] },
): Promise<ChildProcess> {
  const config = join(temporaryFolder(), 'host.toml')
  const at = (name: string) => join(authority.folder, name)
  writeFileSync(
    config,
    `[host]
id = "${id}"
listen = "${ADDRESS[id]}:7443"
controllers = ["${ADDRESS.c}:7440"]
ca = "${authority.ca}"
cert = "${at(`${id}.pem`)}"
key = "${at(`${id}.key`)}"
`,
  )
  return await startDaemonProcess(state, { enter, words: ['--config', config] })
}

async function endAll({
  daemons,
  controller,
  etcd,
  states,
  namespaces,
}: {
  readonly daemons: readonly ChildProcess[]
  readonly controller: ChildProcess
  readonly etcd: Etcd
  readonly states: Readonly<Record<HostId, string>>
  readonly namespaces: BridgedHosts['namespaces']
}): Promise<void> {
  await Promise.all([...daemons, controller].map((child) => endChild(child)))
  await etcd.end()
  for (const state of Object.values(states)) expect(leftovers(state)).toEqual([])
  await Promise.all(Object.values(namespaces).map((namespace) => namespace.close()))
}
