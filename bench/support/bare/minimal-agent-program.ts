import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmdirSync,
  unlinkSync,
  writeFileSync,
  writeSync,
} from 'node:fs'
import { dirname } from 'node:path'
import {
  CreateContainerRequest,
  ExecProcessRequest,
  RemoveContainerRequest,
  SignalProcessRequest,
  StartContainerRequest,
  WaitProcessRequest,
  WaitProcessResponse,
} from '../../../src/gen/agent.ts'
import { HealthCheckResponse } from '../../../src/gen/health.ts'
import { printJson } from '../../../src/oci/json.ts'
import { processConfig } from '../../../src/oci/runtime-config.ts'
import { linuxClock } from '../../../src/os/clock.ts'
import { checkErrno, unwrap } from '../../../src/os/errors.ts'
import { loadNative } from '../../../src/os/native.ts'
import { SocketHandles } from '../../../src/os/sockets/socket-handles.ts'
import { linuxStreams } from '../../../src/os/streams/linux-streams.ts'
import type { Fd } from '../../../src/os/streams/streams.ts'
import { type BrokerConnection, connectBroker } from '../../../src/os/supervisor/broker.ts'
import {
  decodeRecord,
  decodeWaitStatus,
  encodeCommand,
  encodeNamed,
  RECORD_BYTES,
  RecordKind,
} from '../../../src/os/supervisor/channel-record.ts'
import { encode } from '../../../src/rpc/encode.ts'
import { LIMITS } from '../../../src/rpc/limits.ts'
import { startTimer } from '../../../src/rpc/timer.ts'
import { BrokerFraming } from '../../../src/rpc/ttrpc/broker-framing.ts'
import { decodeRequest, encodeErrorFrame, encodeResponseFrame } from '../../../src/rpc/ttrpc/messages.ts'

/**
 * The least that an agent has to do below vminit and the connection broker: it checks, limits, records and logs nothing,
 * and a next agent finds nothing but the listening socket. Unknown calls are answered with an empty message.
 */
const STATE = '/run/microvm-agent/state'
const CALLS = '/run/microvm-agent/calls'
const BUNDLES = '/run/kata-containers'
const NAMESPACES = '/run/sandbox-ns'
const CGROUPS = '/sys/fs/cgroup'
const ENVIRONMENT = ['PATH=/bin:/sbin:/usr/bin:/usr/sbin']
const FIRST_STORED_FD = 6
const BACKLOG = 511
/** AF_VSOCK and io_uring, as by default. */
const DENIED = 3
const ACKNOWLEDGED_AT_ONCE = 64n

const given = new Map(process.argv.slice(2).map((word, index, words) => [word, words[index + 1] ?? '']))
const channel = Number(given.get('--channel'))
const native = loadNative(dirname(import.meta.filename))
const streams = linuxStreams(native)
const handles = new SocketHandles(native)
const broker = connectBroker({
  fd: Number(given.get('--broker')),
  native,
  streams,
  clock: linuxClock(native),
  check: () => {},
})

let runtime: readonly [string, ...string[]] = ['']
let template: { readonly [name: string]: object } = {}

interface Launched {
  readonly pid: number
  readonly exitCode: Promise<number>
  readonly fds: readonly Fd[]
}

const launched = new Map<string, Launched>()
const awaited = new Map<number, (exitCode: number) => void>()
/** Of processes whose pid is not known yet. */
const early = new Map<number, number>()
let launches = 0
let runs = 0

const EMPTY = new Uint8Array(0)
const SERVING = encode(HealthCheckResponse, { status: 1 })

const METHODS: Readonly<Record<string, (request: Uint8Array) => Promise<Uint8Array>>> = {
  CreateSandbox: createSandbox,
  CreateContainer: createContainer,
  StartContainer: startContainer,
  ExecProcess: execProcess,
  WaitProcess: waitProcess,
  SignalProcess: signalProcess,
  RemoveContainer: removeContainer,
}

void main()

async function main(): Promise<void> {
  process.once('SIGTERM', () => process.exit(0))
  checkErrno('unblock', 'the channel', native.setNonBlocking(channel, true))
  receiveRecords()
  const { connection, connections, messageBytes, total } = LIMITS
  const bytes = { framePayloadBytes: messageBytes, totalBytes: total.bytes.limit }
  const limits = {
    allowLoopback: false,
    tcpPeer: '',
    hangMs: 0,
    connections,
    headerMs: connection.headerMs,
    ...bytes,
  }
  await broker.serve(listeningSocket(), limits, serve)
  native.sendMessage(channel, encodeCommand(RecordKind.GATE_OPENED))
  writeSync(1, '{"msg":"listening"}\n{"msg":"booted"}\n')
}

/** Stored by vminit, so that clients wait for the next agent. */
function listeningSocket(): Fd {
  if (given.get('--restarts') !== '0') return FIRST_STORED_FD
  const path = (given.get('--server-addr') ?? '').replace('unix://', '')
  const fd = checkErrno('listen', path, native.unixListen(path, BACKLOG))
  native.sendMessage(channel, encodeNamed(RecordKind.STORE, 'service'), fd)
  return fd
}

function receiveRecords(): void {
  const bytes = native.read(channel, 1024 * RECORD_BYTES)
  if (typeof bytes !== 'number') {
    if (bytes.length === 0) process.exit(1)
    for (let at = 0; at < bytes.length; at += RECORD_BYTES) accept(bytes.subarray(at, at + RECORD_BYTES))
  }
  native.watchFd(channel, 'read', receiveRecords)
}

function accept(bytes: Buffer): void {
  const record = decodeRecord(bytes)
  if (record?.kind !== RecordKind.EXIT) return
  const { pid, status, sequence } = record
  const { exitCode } = decodeWaitStatus(status)
  const resolve = awaited.get(pid)
  if (resolve === undefined) early.set(pid, exitCode)
  else resolve(exitCode)
  awaited.delete(pid)
  if (sequence % ACKNOWLEDGED_AT_ONCE === 0n)
    native.sendMessage(channel, encodeCommand(RecordKind.ACK_EXITS, { sequence }))
}

function exitOf(pid: number): Promise<number> {
  const exitCode = early.get(pid)
  early.delete(pid)
  if (exitCode !== undefined) return Promise.resolve(exitCode)
  return new Promise((resolve) => awaited.set(pid, resolve))
}

function serve({ fd, sendNow }: BrokerConnection): void {
  const socket = handles.socket(fd)
  const refuse = () => broker.fail('a frame that no benchmark sends')
  const framing = new BrokerFraming(
    socket,
    {
      onFrame: ({ streamId }, frame, arrival) => {
        const { method, payload } = decodeRequest(frame)
        const answer = (bytes: Uint8Array) =>
          framing.send({ arrival, frame: encodeResponseFrame(streamId, bytes) })
        if (method === 'Check') return answer(SERVING)
        METHODS[method]?.(payload).then(answer, (error) => {
          const status = { code: 13, message: String(error) }
          framing.send({ arrival, frame: encodeErrorFrame(streamId, status) })
        }) ?? answer(EMPTY)
      },
      onStoredFrame: refuse,
      onRefusedFrame: refuse,
      onHold: () => undefined,
      onRelease: () => {},
      onTaken: () => {},
    },
    { link: broker, startTimer, sendNow },
  )
  socket.on('data', (chunk: Buffer) => framing.push(chunk))
  socket.on('error', () => {})
  socket.on('end', () => {
    framing.close(Buffer.alloc(0))
    socket.end()
  })
}

/** Reads its files only here, because a start without a sandbox reads none. */
async function createSandbox(): Promise<Uint8Array> {
  const text = (name: string) => readFileSync(given.get(name) ?? '', 'utf8')
  const [, binary = ''] = /^runtime = "(.*)"$/m.exec(text('--config')) ?? []
  const options = binary.endsWith('crun') ? ['--cgroup-manager', 'cgroupfs'] : []
  runtime = [binary, '--root', STATE, '--log', `${CALLS}/log.json`, '--log-format', 'json', ...options]
  template = JSON.parse(text('--template'))
  const [ipc, uts] = [`${NAMESPACES}/ipc`, `${NAMESPACES}/uts`]
  for (const folder of [CALLS, NAMESPACES]) mkdirSync(folder, { recursive: true })
  for (const path of [ipc, uts]) writeFileSync(path, '')
  checkErrno('pin', ipc, await native.pinNamespaces(ipc, uts, 'podname'))
  return EMPTY
}

async function createContainer(request: Uint8Array): Promise<Uint8Array> {
  const { containerId: id, OCI } = CreateContainerRequest.decode(request)
  const { process, root, linux } = template
  const config = {
    ...template,
    process: { ...process, args: OCI?.Process?.Args },
    root: { ...root, path: OCI?.Root?.Path },
    linux: { ...linux, cgroupsPath: cgroupOf(id) },
  }
  const bundle = `${BUNDLES}/${id}`
  mkdirSync(bundle, { recursive: true })
  writeFileSync(`${bundle}/config.json`, JSON.stringify(config))
  await launch(`${id}/`, ['create', '--bundle', bundle], id)
  return EMPTY
}

async function startContainer(request: Uint8Array): Promise<Uint8Array> {
  await run(['start', StartContainerRequest.decode(request).containerId], [-1, -1, -1], 0)
  return EMPTY
}

async function execProcess(request: Uint8Array): Promise<Uint8Array> {
  const { containerId, execId, process } = ExecProcessRequest.decode(request)
  const input = `${CALLS}/input-${runs}`
  writeFileSync(input, process === undefined ? '' : printJson(processConfig(process)), { mode: 0o600 })
  await launch(`${containerId}/${execId}`, ['exec', '--detach', '--process', input], containerId)
  unlinkSync(input)
  return EMPTY
}

async function waitProcess(request: Uint8Array): Promise<Uint8Array> {
  const { containerId, execId } = WaitProcessRequest.decode(request)
  const status = await launched.get(`${containerId}/${execId}`)?.exitCode
  if (execId !== '') forget(`${containerId}/${execId}`)
  return encode(WaitProcessResponse, { status: status ?? 255 })
}

async function signalProcess(request: Uint8Array): Promise<Uint8Array> {
  const { containerId, execId, signal } = SignalProcessRequest.decode(request)
  process.kill(launched.get(`${containerId}/${execId}`)?.pid ?? Number.NaN, signal)
  return EMPTY
}

/** Removes what the runtime's own `delete` removes, in its order, and the bundle. */
async function removeContainer(request: Uint8Array): Promise<Uint8Array> {
  const { containerId: id } = RemoveContainerRequest.decode(request)
  for (const hierarchy of hierarchies()) {
    const folder = `${hierarchy}${cgroupOf(id)}`
    if (existsSync(folder)) rmdirSync(folder)
  }
  for (const folder of [`${STATE}/${id}`, `${BUNDLES}/${id}`]) {
    for (const name of readdirSync(folder)) unlinkSync(`${folder}/${name}`)
    rmdirSync(folder)
  }
  forget(`${id}/`)
  return EMPTY
}

function cgroupOf(id: string): string {
  return `/containers-${process.ppid}/${id}`
}

function hierarchies(): readonly string[] {
  const entries = readdirSync(CGROUPS, { withFileTypes: true })
  const folders = entries.filter((entry) => entry.isDirectory())
  return [CGROUPS, ...folders.map(({ name }) => `${CGROUPS}/${name}`)]
}

function forget(key: string): void {
  for (const fd of launched.get(key)?.fds ?? []) native.close(fd)
  launched.delete(key)
}

/** Runs the runtime so that it makes a process with pipes. */
async function launch(key: string, args: readonly string[], id: string): Promise<void> {
  // A pid may be reused, so only exits since the begin of a launch are its own.
  if (launches === 0) early.clear()
  launches += 1
  const pidFile = `${CALLS}/pid-${runs}`
  const [stdin, stdout, stderr] = [0, 1, 2].map(() => unwrap('open', 'a pipe', native.pipe()))
  const childEnds = [stdin?.[0] ?? -1, stdout?.[1] ?? -1, stderr?.[1] ?? -1] as const
  const fds = [stdin?.[1] ?? -1, stdout?.[0] ?? -1, stderr?.[0] ?? -1]
  await run([...args, '--pid-file', pidFile, id], childEnds, DENIED)
  for (const fd of childEnds) native.close(fd)
  const pid = Number(readFileSync(pidFile, 'utf8'))
  unlinkSync(pidFile)
  launched.set(key, { pid, exitCode: exitOf(pid), fds })
  launches -= 1
}

async function run(
  args: readonly string[],
  [stdin, stdout, stderr]: readonly [Fd, Fd, Fd],
  denied: number,
): Promise<void> {
  runs += 1
  const command = [...runtime, ...args]
  const spawned = native.spawn(runtime[0], command, ENVIRONMENT, '/', stdin, stdout, stderr, denied, false)
  const [pid, ending] = unwrap('start', runtime[0], await spawned)
  await new Promise<void>((resolve) => native.watchFd(ending, 'read', resolve))
  native.close(ending)
  if (native.reap(pid) !== 0) throw new Error(readFileSync(`${CALLS}/log.json`, 'utf8'))
}
