import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { writeMicrovm } from '../../src/build/microvm.ts'
import { nodeFlags } from '../../src/build/node-flags.mjs'
import { makeTemporaryFolder, removeTemporaryFolder } from '../../src/build/temporary-folder.ts'
import { EnsureVmRequest } from '../../src/gen/microvm/controller/v1/controller.ts'
import { type HypervisorID, LeaseMode, RunLeaseUpdate_Status as Status } from '../../src/gen/vm.ts'
import { type ControllerClient, openController } from '../../src/host/controller/client.ts'
import { EtcdClient } from '../../src/host/controller/store/etcd-client.ts'
import { put } from '../../src/host/controller/store/keys.ts'
import { readCredentials } from '../../src/host/tls/credentials.ts'
import { endChild } from '../../test/support/processes.ts'
import { startControllerProcess } from '../../test/support/wing/controller/controller-process.ts'
import { freePorts, startEtcd } from '../../test/support/wing/controller/etcd.ts'
import { signCertificates } from '../../test/support/wing/moves/sign-certificates.ts'
import { median, report } from '../support/figure.ts'

/**
 * Switchovers at a controller, as `npm run dist` ships it, with three members of etcd on loopback, against a bare transaction of
 * etcd. What a controller takes for 1,000 calls of RunLease, of which each hears of its change, beside a bare server.
 */
const SWITCHOVERS = 500
const STREAMS = 1000
const HOSTS = 10
const LONGEST_MS = 25
const MOST_MIB = 90e6 / 2 ** 20
const CHANGE_MS = 1000
const TTL_MS = 600_000n

const folder = makeTemporaryFolder(tmpdir())
const hosts = Array.from({ length: HOSTS }, (_, index) => `h${index}`)
const authority = signCertificates(folder, 'hosts', ['controller', ...hosts])
const etcd = await startEtcd(folder, { count: 3 })
const [port = 0, metrics = 0] = await freePorts(2)
const listen = { host: '127.0.0.1', port }
const loopback = { listen, metrics: { host: '127.0.0.1', port: metrics } }
const program = [await writeMicrovm(join(folder, 'dist'))]
// The first start compiles the code.
process.env.NODE_COMPILE_CACHE = join(folder, 'compiled')
const plan = { authority, etcd: etcd.endpoints, program, ...loopback }
await endChild(await startControllerProcess(plan))
const controller = await startControllerProcess(plan)
const clients = await clientsAt(port)
try {
  await measureSwitchovers()
  await measureStreams(controller)
} finally {
  for (const client of clients) client.close()
  await endChild(controller, 'SIGKILL')
  await etcd.end()
  removeTemporaryFolder(folder)
}

async function measureSwitchovers(): Promise<void> {
  const bare = new EtcdClient(etcd)
  const [client] = clients
  if (client === undefined) throw new Error('no client')
  await client.service.ensureVm(leased(idOf('h0', 'web', 1n)))
  const times = { bare: [] as number[], controller: [] as number[] }
  for (let run = 2n; run < 2n + BigInt(SWITCHOVERS); run++) {
    times.bare.push(await timeMs(() => bare.txn({ success: [put(Buffer.from('bare'), Buffer.alloc(200))] })))
    const request = { us: idOf('h0', 'web', run), them: idOf('h0', 'web', run - 1n) }
    times.controller.push(await timeMs(() => client.vms.migrationSwitchover(request)))
  }
  bare.close()
  report({
    figure: 'switchover p99, three members of etcd',
    value: percentile(times.controller, 0.99),
    unit: 'ms',
    floor: LONGEST_MS,
    limit: 1,
    phases: {
      median: median(times.controller),
      'etcd alone, median': median(times.bare),
      'etcd alone, p99': percentile(times.bare, 0.99),
    },
  })
}

async function measureStreams({ pid = 0 }: ChildProcess): Promise<void> {
  const over = new AbortController()
  const before = residentMib(pid)
  const told: Promise<number>[] = []
  for (let index = 0; index < STREAMS; index++) {
    const [host = '', client] = [hosts[index % HOSTS], clients[index % HOSTS]]
    if (client === undefined) throw new Error('no client')
    const us = idOf(host, `vm${index}`, 1n)
    await client.service.ensureVm(leased(us))
    await client.service.renewLease({ us, nonce: Buffer.of(1) })
    const updates = client.runLease(us, over.signal)
    const { value } = await updates.next()
    if (value?.status !== Status.STATUS_OK) throw new Error(`vm${index}: not told that it may run`)
    told.push(updates.next().then(() => performance.now()))
  }
  const resident = residentMib(pid)
  // Each host moves one machine after the other.
  const late = await Promise.all(
    clients.map(async (client, of) => {
      let longest = 0
      for (let index = of; index < STREAMS; index += HOSTS) {
        const them = idOf(hosts[of] ?? '', `vm${index}`, 1n)
        const begin = performance.now()
        await client.vms.migrationSwitchover({ us: { ...them, runId: 2n }, them }, { timeoutMs: 60_000 })
        longest = Math.max(longest, ((await told[index]) ?? 0) - begin)
      }
      return longest
    }),
  )
  over.abort()
  report({
    figure: `controller with ${STREAMS} leases`,
    value: resident,
    unit: 'MiB',
    floor: MOST_MIB,
    limit: 1,
    phases: { before, 'bare grpc-js server': await bareMib() },
  })
  report({
    figure: 'last hypervisor told since its change was asked for',
    value: Math.max(...late),
    unit: 'ms',
    floor: CHANGE_MS,
    limit: 1,
  })
}

/** A bare grpc-js server with as many streams. */
async function bareMib(): Promise<number> {
  const [barePort = 0] = await freePorts(1)
  const script = join(import.meta.dirname, '../support/bare/bare-lease-server.ts')
  const files = [authority.ca, join(folder, 'controller.pem'), join(folder, 'controller.key')]
  const start = async () => {
    const words = [...nodeFlags('controller'), script, `${barePort}`, ...files]
    const started = spawn(process.execPath, words, { stdio: ['ignore', 'pipe', 'inherit'] })
    await once(started.stdout, 'data')
    return started
  }
  await endChild(await start())
  const server = await start()
  const callers = await clientsAt(barePort)
  const over = new AbortController()
  for (let index = 0; index < STREAMS; index++) {
    const us = idOf('h0', `vm${index}`, 1n)
    await callers[index % HOSTS]?.runLease(us, over.signal).next()
  }
  const resident = residentMib(server.pid ?? 0)
  over.abort()
  for (const caller of callers) caller.close()
  await endChild(server, 'SIGKILL')
  return resident
}

/** One of each host. */
async function clientsAt(at: number): Promise<ControllerClient[]> {
  const endpoints = [{ host: '127.0.0.1', port: at }]
  return await Promise.all(
    hosts.map(async (id) => {
      const files = { ca: authority.ca, cert: join(folder, `${id}.pem`), key: join(folder, `${id}.key`) }
      return openController({ endpoints, credentials: await readCredentials({ id, ...files }) })
    }),
  )
}

function idOf(host: string, vmName: string, runId: bigint): HypervisorID {
  return { vmName, namespace: 'default', podName: `${host}/i-${vmName}`, runId }
}

function leased(us: HypervisorID): EnsureVmRequest {
  const settings = { leaseMode: LeaseMode.LM_FULL_LEASES, leaseTtlMs: TTL_MS }
  return EnsureVmRequest.fromPartial({ us, settings })
}

function residentMib(pid: number): number {
  const [, kib = '0'] = /^VmRSS:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8')) ?? []
  return Number(kib) / 1024
}

function percentile(values: readonly number[], part: number): number {
  return values.toSorted((one, other) => one - other)[Math.ceil(values.length * part) - 1] ?? 0
}

async function timeMs(work: () => Promise<unknown>): Promise<number> {
  const begin = performance.now()
  await work()
  return performance.now() - begin
}
