import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { buildAddon } from '../../src/build/native.ts'
import { type AgentProcess, startAgent } from '../../test/support/host/agent-process.ts'
import { makeNetworkNamespace, type NetworkNamespace } from '../../test/support/host/network-namespace.ts'
import { benchEnvironment, median, report } from '../support/figure.ts'

/** UpdateInterface, and UpdateRoutes of 500 routes, on ttRPC, against only their netlink messages. */
const ROUNDS = 31
const ROUTES = 500

const WANTED = {
  name: 'eth0',
  hwAddr: '02:00:00:00:00:01',
  mtu: 1400n,
  IPAddresses: [
    { address: '10.0.0.2', mask: '24' },
    { family: 1, address: 'fd00::2', mask: '64' },
  ],
} as const
const WANTED_ROUTES = Array.from({ length: ROUTES }, (_, number) => ({
  dest: `10.${100 + (number >> 8)}.${number & 255}.0/24`,
  gateway: '10.0.0.1',
  device: 'eth0',
}))

const namespace = await makeNetworkNamespace(`eth0 address ${WANTED.hwAddr} type veth peer name far`)
namespace.ip('link set far up')
const started = await startAgent({ network: namespace })
const bare = await startBare(namespace)
try {
  await measure(started.agent)
} finally {
  bare.process.kill()
  await started.stop()
  await namespace.close()
}

async function measure(agent: AgentProcess['agent']): Promise<void> {
  await bare.run('record')
  const measured = { interface: [] as number[], routes: [] as number[] }
  const floor = { interface: [] as number[], routes: [] as number[] }
  for (let round = 0; round < ROUNDS; round++) {
    reset()
    floor.interface.push(await bare.run('interface'))
    floor.routes.push(await bare.run('routes'))
    reset()
    measured.interface.push(
      await elapsedUs(() =>
        agent.updateInterface({ interface: { ...WANTED, IPAddresses: [...WANTED.IPAddresses] } }),
      ),
    )
    measured.routes.push(await elapsedUs(() => agent.updateRoutes({ routes: { Routes: WANTED_ROUTES } })))
  }
  const phases = { UpdateInterface: median(measured.interface), UpdateRoutes: median(measured.routes) }
  report({
    figure: `UpdateInterface and ${ROUTES} routes`,
    unit: 'us',
    value: phases.UpdateInterface + phases.UpdateRoutes,
    floor: median(floor.interface) + median(floor.routes),
    limit: 3,
    phases,
  })
}

/** Without addresses the link has no routes either. */
function reset(): void {
  namespace.ip('address flush dev eth0')
  namespace.ip('link set eth0 down mtu 1500')
}

/** Starts a process that sends only the messages and answers each word with a time in microseconds. */
async function startBare(
  within: NetworkNamespace,
): Promise<{ process: ChildProcess; run(word: string): Promise<number> }> {
  const script = join(import.meta.dirname, '../support/bare/network-bare.ts')
  const described = JSON.stringify({ ...WANTED, mtu: String(WANTED.mtu) })
  const [program = '', ...argv] = [...within.enter, process.execPath, script]
  const child = spawn(program, [...argv, await buildAddon(), described, JSON.stringify(WANTED_ROUTES)], {
    env: benchEnvironment(),
    stdio: ['pipe', 'pipe', 'inherit'],
  })
  const lines = createInterface(child.stdout)
  return {
    process: child,
    run: async (word) => {
      child.stdin.write(`${word}\n`)
      const [line] = await once(lines, 'line')
      return Number(line)
    },
  }
}

async function elapsedUs(action: () => Promise<unknown>): Promise<number> {
  const begin = performance.now()
  await action()
  return (performance.now() - begin) * 1000
}
