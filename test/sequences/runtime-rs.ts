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
 * The calls of runtime-rs for a pod: a pause container, then two others created concurrently. Each has its own pid
 * namespace. A first process has no exec id, an empty write closes stdin, and a timer checks the sandbox's health.
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
      ...networkSteps(),
      ...sandbox(surroundings),
      ...pause(),
      ...app(),
      // In a guest the recordings show these steps.
      ...(surroundings.isGuest ? [] : [...terminal(), ...probe()]),
      ...endOfApp(),
      ...endOfSidecar(),
      { stop: 'version' },
      { stop: 'health' },
      ...(ending === 'DestroySandbox' ? destroyed() : deadAgent()),
    ],
  }
}

function sandbox(surroundings: Surroundings): readonly Step[] {
  const request = { hostname: POD_HOSTNAME, sandboxId: PAUSE.key.containerId }
  const asked = { timeoutMs: 90_000, answers: { status: 1 } } as const
  const version = { grpcVersion: '0.0.1', agentVersion: expect.stringMatching(/./) }
  return [
    ...sandboxCreated(['runtime-rs.exec-tty-pause-metrics', 2], request, surroundings),
    {
      call: agent('getGuestDetails', { memBlockSize: true, memHotplugProbe: true }),
      answers: { memBlockSizeBytes: expect.any(BigInt), agentDetails: { version: expect.any(String) } },
    },
    { loop: 'out of memory', call: agent('getOOMEvent', {}), timeoutMs: 'none' },
    { timer: 'health', everyMs: 30_000, call: health('check', {}), ...asked },
    {
      ...asked,
      timer: 'version',
      everyMs: 300_000,
      call: health('version', {}),
      answers: version,
    },
  ]
}

function pause(): readonly Step[] {
  return [
    { shares: rootPathOf(PAUSE) },
    { call: creation(PAUSE, RESTING) },
    started(PAUSE),
    exitAwaited(PAUSE),
  ]
}

/** The app is created at the same time as its sidecar, and its output is read before it is started. */
function app(): readonly Step[] {
  return [
    { shares: rootPathOf(APP) },
    { shares: rootPathOf(SIDECAR) },
    { begin: 'creation of app', call: creation(APP, TALKING) },
    { begin: 'creation of sidecar', call: creation(SIDECAR, RESTING) },
    { ended: 'creation of sidecar' },
    { ended: 'creation of app' },
    ...outputs(APP),
    started(SIDECAR),
    started(APP),
    ...outputs(SIDECAR),
    { shown: `pid 1 on ${POD_HOSTNAME}\n`, by: 'stdout of app' },
    written(APP, 'hello\n'),
    { shown: 'hello\n', by: 'stdout of app' },
    written(APP, ''),
    { shown: 'input ended\n', by: 'stdout of app' },
    statistics(APP),
    statistics(SIDECAR),
  ]
}

function terminal(): readonly Step[] {
  const size = { row: 50, column: 132 }
  return [
    {
      call: agent('execProcess', {
        ...TERMINAL.key,
        process: execProcess(RS_WORDS, INTERACTIVE, 'addedTerminal'),
      }),
    },
    output(TERMINAL, 'stdout'),
    { call: agent('ttyWinResize', { ...TERMINAL.key, ...size }), timeoutMs: 'none' },
    written(TERMINAL, 'x\n'),
    { ended: 'stdout of terminal', brought: /^(x\r\n)?50 132\r\ntyped x\r\n$/ },
    exited(TERMINAL, 7),
  ]
}

function probe(): readonly Step[] {
  return [
    { call: agent('execProcess', { ...READINESS.key, process: execProcess(RS_WORDS, PROBE) }) },
    ...outputs(READINESS),
    written(READINESS, 'ready?\n'),
    written(READINESS, ''),
    { ended: 'stdout of probe', brought: /^ready\?\n\d+\n\/bin\/sh -c trap / },
    { ended: 'stderr of probe', brought: '' },
    exited(READINESS, 3),
  ]
}

/** SIGTERM goes only to init, which handles it; SIGKILL ends all processes; later signals find none. */
function endOfApp(): readonly Step[] {
  return [
    signalled(APP, SIGTERM),
    { shown: 'got TERM\n', by: 'stdout of app' },
    signalled(APP, SIGKILL),
    {
      ended: 'stdout of app',
      brought: `pid 1 on ${POD_HOSTNAME}\nhello\ninput ended\ngot TERM\n`,
    },
    { ended: 'stderr of app', brought: 'problem\n' },
    exited(APP, 128 + SIGKILL),
    tolerated(APP),
    removed(APP),
  ]
}

function endOfSidecar(): readonly Step[] {
  return [
    signalled(SIDECAR, SIGTERM),
    { ended: 'stdout of sidecar', brought: '' },
    { ended: 'stderr of sidecar', brought: '' },
    exited(SIDECAR, 128 + SIGKILL),
    removed(SIDECAR),
  ]
}

function destroyed(): readonly Step[] {
  return [
    { call: agent('destroySandbox', {}) },
    // This shim reports a failed wait as exit code 255.
    {
      ended: 'exit of pause',
      answers: { status: 128 + SIGKILL },
      fails: { codes: ['INVALID_ARGUMENT', 'UNAVAILABLE'] },
    },
    { ended: 'out of memory', fails: { codes: ['INTERNAL', 'UNAVAILABLE'] } },
    { connection: 'ended' },
  ]
}

function deadAgent(): readonly Step[] {
  const lost = { fails: LOST } as const
  const dead = { fails: { codes: ['INTERNAL'], text: /^Dead agent/ } } as const
  return [
    { connection: 'agent dies' },
    { ...lost, ended: 'exit of pause' },
    { ...lost, ended: 'out of memory' },
    { connection: 'breaks' },
    { call: health('check', {}), timeoutMs: 90_000, answers: { status: 1 } },
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
  return { call: agent('statsContainer', { containerId }), answers }
}

/** The error of a signal to an ended process must be recognizable by its code or text. */
function tolerated(process: ShimProcess): Step {
  return { ...signalled(process, SIGTERM), answers: {}, fails: { codes: ['NOT_FOUND'] } }
}
