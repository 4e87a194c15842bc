import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, join } from 'node:path'
import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'
import { Client, credentials } from '@grpc/grpc-js'
import { writeMicrovm } from '../../src/build/microvm.ts'
import { buildAddon } from '../../src/build/native.ts'
import { nodeFlags } from '../../src/build/node-flags.mjs'
import { makeTemporaryFolder, removeTemporaryFolder } from '../../src/build/temporary-folder.ts'
import {
  EnsureInstanceRequest,
  GetInstanceRequest,
  InstanceServiceDefinition,
  ListInstancesResponse,
} from '../../src/gen/microvm/instance/v1/instance.ts'
import { endChild } from '../../test/support/processes.ts'
import { CONSOLE_ONLY, ensureRequest } from '../../test/support/wing/requests.ts'
import { benchEnvironment, median, report } from '../support/figure.ts'
import { wakeUpsOf } from '../support/process-figures.ts'

/**
 * The daemon's service over unix sockets without machines, against a bare grpc-js server: calls and wake-ups of a mock. The memory of
 * the daemon itself, as `npm run dist` ships it, also beside a bare server with SQLite and the addon.
 */
const ROUNDS = 20
const CALLS_A_ROUND = 512
const INSTANCES = 1000
const SMALL = { specification: CONSOLE_ONLY }
const DAEMON_FLAGS = nodeFlags('daemon')
const BARE_FLAGS = [...nodeFlags(), '--no-memory-reducer']
const DAEMON = 'mock-daemon.ts'
const BARE = 'bare/rpc-bare-server.ts'
const IDLE_SECONDS = 20
/** V8 collects garbage after work, for up to 20 s as measured. */
const TIDY_SECONDS = 30

const addon = await buildAddon()
const folder = makeTemporaryFolder(tmpdir())
const programs: ChildProcess[] = []
try {
  const bareCaller = (path: string) => caller(path, 'grpc.Health/Check')
  const bare = await start(BARE, bareCaller, '')
  await measureMemory(bare, await start('bare/bare-daemon.ts', bareCaller, ''))
  await measure(
    bare,
    await start(
      DAEMON,
      (path) => caller(join(path, 'admin.sock'), InstanceServiceDefinition.fullName),
      '/ListCalls',
    ),
  )
} finally {
  for (const program of programs) await endChild(program, 'SIGKILL')
  removeTemporaryFolder(folder)
}

interface Side {
  readonly pid: number
  call(method: string, request?: Uint8Array): Promise<Buffer>
  close(): void
}

async function measureMemory(bare: Side, bareDaemon: Side): Promise<void> {
  const daemon = await startShipped()
  const pids = [bare.pid, bareDaemon.pid, daemon.pid ?? 0]
  const [floor = 0, reachable = 0, value = 0] = await Promise.all(pids.map(idleMib))
  await endChild(daemon, 'SIGTERM')
  const phases = { 'bare server with SQLite and the addon': reachable }
  report({ figure: 'memory of an idle daemon', unit: 'MiB', value, floor, limit: 1.1, phases })
  bareDaemon.close()
}

async function measure(bare: Side, daemon: Side): Promise<void> {
  const empty = () => bare.call('')
  await daemon.call('/EnsureInstance', EnsureInstanceRequest.encode(ensureRequest('i0', SMALL)).finish())
  const request = GetInstanceRequest.encode({ key: 'i0' }).finish()
  const get = () => daemon.call('/GetInstance', request)
  const [floors, values]: [number[], number[]] = [[], []]
  for (let round = -ROUNDS; round < ROUNDS; round += 1) {
    await timed(empty, round < 0 ? [] : floors)
    await timed(get, round < 0 ? [] : values)
  }
  const [value, floor] = [median(values), median(floors)]
  report({ figure: 'GetInstance, to an empty call of bare grpc-js', unit: 'us', value, floor, limit: 1.2 })

  for (let index = 1; index < INSTANCES; index += 1)
    await daemon.call(
      '/EnsureInstance',
      EnsureInstanceRequest.encode(ensureRequest(`i${index}`, SMALL)).finish(),
    )
  const lists: number[] = []
  for (let round = -ROUNDS; round < ROUNDS; round += 1) {
    const begin = performance.now()
    const answer = await daemon.call('/ListInstances')
    if (round >= 0) lists.push(performance.now() - begin)
    else if (round === -1 && ListInstancesResponse.decode(answer).instances.length !== INSTANCES)
      throw new Error('the list is not whole')
  }
  report({ figure: `list of ${INSTANCES} instances`, unit: 'ms', value: median(lists), floor: 20, limit: 1 })

  bare.close()
  daemon.close()
  await sleep(TIDY_SECONDS * 1000)
  const before = wakeUpsOf(daemon.pid)
  await sleep(IDLE_SECONDS * 1000)
  const wakeUps = wakeUpsOf(daemon.pid) - before
  report({
    ...{ figure: `wake-ups of an idle daemon in ${IDLE_SECONDS} s`, unit: 'wake-ups' },
    ...{ value: wakeUps, floor: 0, limit: 1 },
  })
}

async function timed(call: () => Promise<unknown>, elapsed: number[]): Promise<void> {
  for (let made = 0; made < CALLS_A_ROUND; made += 1) {
    const begin = performance.now()
    await call()
    elapsed.push((performance.now() - begin) * 1000)
  }
}

/** As the unit of systemd does: with compiled code of an earlier start, which has been called once. */
async function start(
  script: string,
  callerOf: (path: string) => Pick<Side, 'call' | 'close'>,
  method: string,
): Promise<Side> {
  const path = join(folder, basename(script))
  const before = `${path}.0`
  const first = await startOnce(script, before)
  await callOnce(callerOf(before), method)
  await endChild(first, 'SIGTERM')
  const child = await startOnce(script, path)
  if (child.pid === undefined) throw new Error(`${script} could not be started`)
  const side = { pid: child.pid, ...callerOf(path) }
  await side.call(method)
  return side
}

async function callOnce(side: Pick<Side, 'call' | 'close'>, method: string): Promise<void> {
  await side.call(method)
  side.close()
}

async function startOnce(script: string, path: string): Promise<ChildProcess> {
  const flags = script === DAEMON ? DAEMON_FLAGS : BARE_FLAGS
  const words = [...flags, join(import.meta.dirname, '../support', script), path, addon]
  const child = spawnProgram(process.execPath, words)
  await once(child.stdout, 'data')
  return child
}

/** With compiled code of an earlier start. */
async function startShipped(): Promise<ChildProcess> {
  const microvm = await writeMicrovm(join(folder, 'dist'))
  const start = async () => {
    const child = spawnProgram(microvm, ['daemon', '--state', join(folder, 'real')])
    for await (const line of createInterface(child.stderr)) if (line.includes('"msg":"serving"')) return child
    throw new Error('the daemon could not be started')
  }
  await endChild(await start(), 'SIGTERM')
  return await start()
}

function spawnProgram(program: string, words: readonly string[]) {
  const env = { ...benchEnvironment(), NODE_COMPILE_CACHE: join(folder, 'compiled') }
  const child = spawn(program, words, { env, stdio: ['ignore', 'pipe', 'pipe'] })
  child.stderr.pipe(process.stderr)
  programs.push(child)
  return child
}

function caller(socket: string, prefix: string): Pick<Side, 'call' | 'close'> {
  const client = new Client(`unix:${socket}`, credentials.createInsecure())
  const same = (bytes: Buffer) => bytes
  return {
    call: (method, request = new Uint8Array(0)) =>
      new Promise((resolve, reject) => {
        client.makeUnaryRequest(
          `/${prefix}${method}`,
          same,
          same,
          Buffer.from(request),
          (error, response) => {
            if (error === null && response !== undefined) resolve(response)
            else reject(error)
          },
        )
      }),
    close: () => client.close(),
  }
}

async function idleMib(pid: number): Promise<number> {
  await sleep(5000)
  return Number(/^VmRSS:\s+(\d+) kB/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]) / 1024
}
