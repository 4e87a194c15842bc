import { expect } from 'vitest'
import { SIGKILL, SIGTERM } from '../../src/base/signals.ts'
import { SHARED_FOLDER } from '../recordings/supplies.ts'
import {
  execProcess,
  INTERACTIVE,
  POD_HOSTNAME,
  PROBE,
  RESTING,
  RS_WORDS,
  shimSpec,
  TALKING,
} from './containers.ts'
import { networkSteps } from './network.ts'
import {
  added,
  exitAwaited,
  exited,
  output,
  outputs,
  removed,
  type ShimProcess,
  signalled,
  started,
  written,
} from './process-steps.ts'
import { sandboxCreated } from './sandbox-steps.ts'
import { agent, type Ending, health, LOST, type Sequence, type Step, type Surroundings } from './sequence.ts'

/** The sandbox has the id of its first container. */
const PAUSE = initOf('pause', '7b'.repeat(32))
const APP = initOf('app', 'c4'.repeat(32))
const SIDECAR = initOf('sidecar', '6d'.repeat(32))
const TERMINAL = added('terminal', APP, 'e1a2b3c4-5d6e-4f70-8192-a3b4c5d6e7f8')
const READINESS = added('probe', APP, 'f9e8d7c6-b5a4-4938-a716-051423324150')

/**
 * The calls of runtime-rs for a pod of a pause container and two others, created concurrently, each with its own pid
 * namespace (M.2). Init has no exec id, an empty write closes stdin, and a timer checks the health of the sandbox.
 */
export function runtimeRs(surroundings: Surroundings, ending: Ending): Sequence {
  return {
    caller: 'runtime-rs',
    metadata: {},
    timeoutMs: 240_000,
    hasHealthConnection: false,
    containers: [PAUSE, APP, SIDECAR].map(({ key }) => key.containerId),
    sharedCgroups: ['default'],
    steps: [
      ...networkSteps('M.2'),
      ...sandbox(surroundings),
      ...pause(),
      ...app(),
      // In a guest the recordings show these.
      ...(surroundings.isGuest ? [] : [...terminal(), ...probe()]),
      ...endOfApp(),
      ...endOfSidecar(),
      { from: 'M.2', stop: 'version' },
      { from: 'M.2', stop: 'health' },
      ...(ending === 'DestroySandbox' ? destroyed() : deadAgent()),
    ],
  }
}

function sandbox(surroundings: Surroundings): readonly Step[] {
  const request = { hostname: POD_HOSTNAME, sandboxId: PAUSE.key.containerId }
  const asked = { timeoutMs: 90_000, answers: { status: 1 } } as const
  const version = { grpcVersion: '0.0.1', agentVersion: expect.stringMatching(/./) }
  return [
    ...sandboxCreated('M.2', ['runtime-rs.exec-tty-pause-metrics', 2], request, surroundings),
    {
      from: 'M.2',
      call: agent('getGuestDetails', { memBlockSize: true, memHotplugProbe: true }),
      answers: { memBlockSizeBytes: expect.any(BigInt), agentDetails: { version: expect.any(String) } },
    },
    { from: 'M.2', loop: 'out of memory', call: agent('getOOMEvent', {}), timeoutMs: 'none' },
    { from: 'M.2', timer: 'health', everyMs: 30_000, call: health('check', {}), ...asked },
    {
      ...asked,
      from: 'M.2',
      timer: 'version',
      everyMs: 300_000,
      call: health('version', {}),
      answers: version,
    },
  ]
}

function pause(): readonly Step[] {
  return [
    { from: 'E.5', shares: rootPathOf(PAUSE) },
    { from: 'M.2', call: creation(PAUSE, RESTING) },
    started('M.2', PAUSE),
    exitAwaited('C.6', PAUSE),
  ]
}

/** The app is created at the same time as its sidecar, and its output is read before it is started (M.3). */
function app(): readonly Step[] {
  return [
    { from: 'E.5', shares: rootPathOf(APP) },
    { from: 'E.5', shares: rootPathOf(SIDECAR) },
    { from: 'M.3', begin: 'creation of app', call: creation(APP, TALKING) },
    { from: 'M.3', begin: 'creation of sidecar', call: creation(SIDECAR, RESTING) },
    { from: 'M.3', ended: 'creation of sidecar' },
    { from: 'M.3', ended: 'creation of app' },
    ...outputs('M.3', APP),
    started('M.2', SIDECAR),
    started('M.2', APP),
    ...outputs('M.2', SIDECAR),
    { from: 'D.3', shown: `pid 1 on ${POD_HOSTNAME}\n`, by: 'stdout of app' },
    written('M.2', APP, 'hello\n'),
    { from: 'C.13', shown: 'hello\n', by: 'stdout of app' },
    written('M.2', APP, ''),
    { from: 'C.13', shown: 'input ended\n', by: 'stdout of app' },
    statistics(APP),
    statistics(SIDECAR),
  ]
}

function terminal(): readonly Step[] {
  const from = 'M.2'
  const size = { row: 50, column: 132 }
  return [
    {
      from,
      call: agent('execProcess', {
        ...TERMINAL.key,
        process: execProcess(RS_WORDS, INTERACTIVE, 'addedTerminal'),
      }),
    },
    output(from, TERMINAL, 'stdout'),
    { from, call: agent('ttyWinResize', { ...TERMINAL.key, ...size }), timeoutMs: 'none' },
    written(from, TERMINAL, 'x\n'),
    { from: 'C.16', ended: 'stdout of terminal', brought: /^(x\r\n)?50 132\r\ntyped x\r\n$/ },
    exited(from, TERMINAL, 7),
  ]
}

function probe(): readonly Step[] {
  const from = 'M.2'
  return [
    { from, call: agent('execProcess', { ...READINESS.key, process: execProcess(RS_WORDS, PROBE) }) },
    ...outputs(from, READINESS),
    written(from, READINESS, 'ready?\n'),
    written(from, READINESS, ''),
    { from: 'D.3', ended: 'stdout of probe', brought: /^ready\?\n\d+\n\/bin\/sh -c trap / },
    { from, ended: 'stderr of probe', brought: '' },
    exited(from, READINESS, 3),
  ]
}

/** SIGTERM goes only to init, which handles it; SIGKILL ends all processes; later signals find none. */
function endOfApp(): readonly Step[] {
  return [
    signalled('C.5', APP, SIGTERM),
    { from: 'C.5', shown: 'got TERM\n', by: 'stdout of app' },
    signalled('C.5', APP, SIGKILL),
    {
      from: 'C.14',
      ended: 'stdout of app',
      brought: `pid 1 on ${POD_HOSTNAME}\nhello\ninput ended\ngot TERM\n`,
    },
    { from: 'C.14', ended: 'stderr of app', brought: 'problem\n' },
    exited('C.6', APP, 128 + SIGKILL),
    tolerated(APP),
    removed('C.3', APP),
  ]
}

function endOfSidecar(): readonly Step[] {
  return [
    signalled('C.5', SIDECAR, SIGTERM),
    { from: 'C.14', ended: 'stdout of sidecar', brought: '' },
    { from: 'C.14', ended: 'stderr of sidecar', brought: '' },
    exited('C.6', SIDECAR, 128 + SIGKILL),
    removed('C.3', SIDECAR),
  ]
}

/** The sandbox is destroyed with its first container still running (M.3). */
function destroyed(): readonly Step[] {
  return [
    { from: 'M.3', call: agent('destroySandbox', {}) },
    // This shim reports a failed wait as exit code 255.
    {
      from: 'M.2',
      ended: 'exit of pause',
      answers: { status: 128 + SIGKILL },
      fails: { codes: ['INVALID_ARGUMENT', 'UNAVAILABLE'] },
    },
    { from: 'C.33', ended: 'out of memory', fails: { codes: ['INTERNAL', 'UNAVAILABLE'] } },
    { from: 'C.26', connection: 'ended' },
  ]
}

/** The agent restarts. Every later call except the health checks fails. */
function deadAgent(): readonly Step[] {
  const lost = { from: 'M.2', fails: LOST } as const
  const dead = { from: 'B.6', fails: { codes: ['INTERNAL'], text: /^Dead agent/ } } as const
  return [
    { from: 'I.13', connection: 'agent dies' },
    { ...lost, ended: 'exit of pause' },
    { ...lost, ended: 'out of memory' },
    { from: 'B.1', connection: 'breaks' },
    { from: 'M.2', call: health('check', {}), timeoutMs: 90_000, answers: { status: 1 } },
    { ...dead, call: agent('waitProcess', PAUSE.key), timeoutMs: 'none' },
    { ...dead, call: agent('signalProcess', { ...PAUSE.key, signal: SIGKILL }) },
  ]
}

function initOf(name: string, containerId: string): ShimProcess {
  return { name, key: { containerId, execId: '' } }
}

function rootPathOf({ key }: ShimProcess): string {
  return `${SHARED_FOLDER}passthrough/${key.containerId}/rootfs`
}

function creation(init: ShimProcess, args: readonly string[]) {
  const id = init.key.containerId
  const kind = init === PAUSE ? 'pause' : 'app'
  const OCI = shimSpec({
    words: RS_WORDS,
    kind,
    args,
    rootPath: rootPathOf(init),
    cgroupsPath: `/default/${id}`,
  })
  return agent('createContainer', { ...init.key, OCI })
}

function statistics({ key: { containerId } }: ShimProcess): Step {
  const answers = { cgroupStats: { memoryStats: { usage: { usage: expect.any(BigInt) } } } }
  return { from: 'H', call: agent('statsContainer', { containerId }), answers }
}

/** A signal to a process that has ended; the error must identify this by its code or text (B.6). */
function tolerated(process: ShimProcess): Step {
  return { ...signalled('B.6', process, SIGTERM), answers: {}, fails: { codes: ['NOT_FOUND'] } }
}
