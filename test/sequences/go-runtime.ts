import { expect } from 'vitest'
import { SIGKILL, SIGTERM } from '../../src/base/signals.ts'
import { SHARED_FOLDER } from '../recordings/supplies.ts'
import {
  execProcess,
  GO_WORDS,
  HUNGRY,
  INTERACTIVE,
  POD_HOSTNAME,
  PROBE,
  RESTING,
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
import { sandboxCreated, shmResized } from './sandbox-steps.ts'
import { agent, type Ending, health, LOST, type Sequence, type Step, type Surroundings } from './sequence.ts'

/** The sandbox has the id of its first container. */
const PAUSE = initOf('pause', '5a'.repeat(32))
const APP = initOf('app', 'a9'.repeat(32))
const SIDECAR = initOf('sidecar', '51'.repeat(32))
const TERMINAL = added('terminal', APP, '0b6c1f0e-6a7c-4d53-9d9e-3f6f5e0c7a11')
const READINESS = added('probe', APP, '7d1e64c2-2f0b-4a5b-8c8e-51c5a3f0d922')
const HOG = added('hog', APP, 'c3d8a7b4-90f1-4b7e-a1f3-2e6d0f9b8c33')

/** The parent cgroup of all containers; their cgroup paths have the form for systemd (D.6), which no recording has. */
const POD_SLICE = 'kubepods-besteffort-pod51c0ffee.slice'

/**
 * The calls of the Go runtime for a pod of a pause container and two others in its pid namespace (M.1). Init has the
 * container's id as its exec id. The long-lived connection breaks once and is dialled again.
 */
export function goRuntime(surroundings: Surroundings, ending: Ending): Sequence {
  return {
    caller: 'the Go runtime',
    metadata: { 'containerd-namespace-ttrpc': 'k8s.io' },
    timeoutMs: 60_000,
    hasHealthConnection: false,
    containers: [PAUSE, APP, SIDECAR].map(({ key }) => key.containerId),
    sharedCgroups: [`${POD_SLICE}/cri-containerd`],
    steps: [
      { from: 'M.1, 1', call: health('check', {}), timeoutMs: 30_000, answers: { status: 1 } },
      ...networkSteps('M.1, 3'),
      ...sandbox(surroundings),
      ...pause(),
      ...brokenConnection(),
      ...resources(),
      ...app(),
      // In a guest the recordings show these.
      ...(surroundings.isGuest ? [] : [...terminal(), ...outOfMemory()]),
      ...readiness(),
      ...endOfApp(),
      ...sidecar(),
      ...(ending === 'DestroySandbox' ? destroyed() : deadAgent()),
    ],
  }
}

function sandbox(surroundings: Surroundings): readonly Step[] {
  const request = {
    hostname: POD_HOSTNAME,
    sandboxId: PAUSE.key.containerId,
  }
  return [
    ...sandboxCreated('M.1, 4', ['go-shim.cri-pod-five-containers', 5], request, surroundings),
    {
      from: 'M.1, 5',
      call: agent('getGuestDetails', { memBlockSize: true, memHotplugProbe: true }),
      answers: {
        memBlockSizeBytes: expect.any(BigInt),
        supportMemHotplugProbe: expect.any(Boolean),
        agentDetails: { supportsSeccomp: true, storageHandlers: expect.arrayContaining(['ephemeral']) },
      },
    },
  ]
}

function pause(): readonly Step[] {
  return [
    ...created('M.1, 6', PAUSE, RESTING),
    memoryWatched(),
    started('M.1, 8', PAUSE),
    exitAwaited('M.1, 10', PAUSE),
  ]
}

/** The pending calls fail with the connection, and the shim makes them again. */
function brokenConnection(): readonly Step[] {
  const lost = { from: 'B.6', fails: { codes: ['UNAVAILABLE'] } } as const
  return [
    { from: 'B.1', connection: 'breaks' },
    { ...lost, ended: 'out of memory' },
    { ...lost, ended: 'exit of pause' },
    { from: 'M.1, 1', call: health('check', {}), timeoutMs: 30_000, answers: { status: 1 } },
    memoryWatched(),
    exitAwaited('M.1, 10', PAUSE),
  ]
}

/** Brings CPUs and memory online for a container before it is created. */
function resources(): readonly Step[] {
  const from = 'M.1, 8'
  return [
    { from, call: agent('onlineCPUMem', { nbCpus: 2, cpuOnly: true }) },
    {
      from: 'C.30',
      call: agent('memHotplugByProbe', { memHotplugProbeAddr: [0x1_0000_0000n] }),
      // The shim sends it only if GetGuestDetails reports a probe file; few kernels have one.
      answers: {},
      fails: { codes: ['FAILED_PRECONDITION'], text: /probe/ },
    },
    { from, call: agent('onlineCPUMem', { nbCpus: 0, cpuOnly: false }) },
    shmResized(from, '32M'),
  ]
}

function app(): readonly Step[] {
  const { containerId } = APP.key
  return [
    ...created('M.1, 8', APP, TALKING),
    started('M.1, 8', APP),
    ...outputs('M.1, 9', APP),
    {
      from: 'H',
      timer: 'statistics',
      everyMs: 10_000,
      call: agent('statsContainer', { containerId }),
      answers: { cgroupStats: { pidsStats: { current: expect.any(BigInt) } } },
    },
    { from: 'D.3', shown: ` on ${POD_HOSTNAME}\n`, by: 'stdout of app' },
    written('M.1, 9', APP, 'hello\n'),
    { from: 'C.13', shown: 'hello\n', by: 'stdout of app' },
    { from: 'M.1, 9', call: agent('closeStdin', APP.key), timeoutMs: 'none' },
    { from: 'C.15', shown: 'input ended\n', by: 'stdout of app' },
  ]
}

/** An interactive process with a terminal. */
function terminal(): readonly Step[] {
  const from = 'M.1, exec'
  const size = { row: 40, column: 120 }
  return [
    {
      from,
      call: agent('execProcess', {
        ...TERMINAL.key,
        process: execProcess(GO_WORDS, INTERACTIVE, 'addedTerminal'),
      }),
    },
    output(from, TERMINAL, 'stdout'),
    { from, call: agent('ttyWinResize', { ...TERMINAL.key, ...size }), timeoutMs: 'none' },
    written(from, TERMINAL, 'x\n'),
    { from: 'C.16', ended: 'stdout of terminal', brought: /^(x\r\n)?40 120\r\ntyped x\r\n$/ },
    exited(from, TERMINAL, 7),
  ]
}

/** A probe; it sees the remounted shared memory, and the pause container as the first process of the pod. */
function readiness(): readonly Step[] {
  const from = 'M.1, exec'
  const seen = `32768\n${RESTING.join(' ')} `
  return [
    { from, call: agent('execProcess', { ...READINESS.key, process: execProcess(GO_WORDS, PROBE) }) },
    ...outputs(from, READINESS),
    written(from, READINESS, 'ready?\n'),
    { from, call: agent('closeStdin', READINESS.key), timeoutMs: 'none' },
    { from: 'C.8, D.3', ended: 'stdout of probe', brought: `ready?\n${seen}` },
    { from, ended: 'stderr of probe', brought: '' },
    // It has exited, but no call has waited for it yet.
    signalled('C.5', READINESS, SIGTERM),
    exited(from, READINESS, 3),
  ]
}

function outOfMemory(): readonly Step[] {
  const from = 'M.1, exec'
  return [
    { from, call: agent('execProcess', { ...HOG.key, process: execProcess(GO_WORDS, HUNGRY) }) },
    ...outputs(from, HOG),
    { from: 'C.33', shown: `${APP.key.containerId}\n`, by: 'out of memory' },
    { from, ended: 'stdout of hog', brought: '' },
    { from, ended: 'stderr of hog' },
    exited(from, HOG, 128 + SIGKILL),
  ]
}

/** Sends SIGTERM, which the app handles, then SIGKILL to all its processes, then a signal after its end. */
function endOfApp(): readonly Step[] {
  return [
    signalled('C.5', APP, SIGTERM),
    { from: 'C.5', shown: 'got TERM\n', by: 'stdout of app' },
    allKilled(APP),
    {
      from: 'C.14',
      ended: 'stdout of app',
      brought: new RegExp(`^pid (?!1 )\\d+ on ${POD_HOSTNAME}\nhello\ninput ended\ngot TERM\n$`),
    },
    { from: 'C.14', ended: 'stderr of app', brought: 'problem\n' },
    exited('M.1, 10', APP, 128 + SIGKILL),
    {
      ...signalled('B.6', APP, SIGKILL),
      answers: {},
      fails: { codes: ['NOT_FOUND', 'INTERNAL'], text: /ESRCH: No such process|not found|not exist/ },
    },
    { from: 'H', stop: 'statistics' },
    removed('M.1, 12', APP),
    { from: 'C.11', call: agent('removeStaleVirtiofsShareMounts', {}) },
  ]
}

/** A container without a handler for SIGTERM, which therefore ends it. */
function sidecar(): readonly Step[] {
  return [
    ...created('M.1, 8', SIDECAR, RESTING),
    started('M.1, 8', SIDECAR),
    ...outputs('M.1, 9', SIDECAR),
    signalled('C.5', SIDECAR, SIGTERM),
    { from: 'C.14', ended: 'stdout of sidecar', brought: '' },
    { from: 'C.14', ended: 'stderr of sidecar', brought: '' },
    exited('M.1, 10', SIDECAR, 128 + SIGKILL),
    removed('M.1, 12', SIDECAR),
  ]
}

/** The watcher of out-of-memory events polls again after every error except that of a closed connection. */
function destroyed(): readonly Step[] {
  return [
    allKilled(PAUSE),
    { from: 'M.1, 10', ended: 'exit of pause', answers: { status: 128 + SIGKILL } },
    removed('M.1, 12', PAUSE),
    { from: 'M.1, 13', call: agent('destroySandbox', {}) },
    { from: 'C.33', ended: 'out of memory', fails: { codes: ['INTERNAL', 'UNAVAILABLE'] } },
    { from: 'M.1, 13', connection: 'ended' },
    { from: 'B.6', call: agent('getOOMEvent', {}), timeoutMs: 'none', fails: { codes: ['UNAVAILABLE'] } },
  ]
}

/** The agent restarts. The watcher of out-of-memory events stops at the error `Dead agent`. */
function deadAgent(): readonly Step[] {
  const lost = { from: 'B.6', fails: LOST } as const
  return [
    { from: 'I.13', connection: 'agent dies' },
    { ...lost, ended: 'out of memory' },
    { ...lost, ended: 'exit of pause' },
    { from: 'B.1', connection: 'breaks' },
    { from: 'M.1, 1', call: health('check', {}), timeoutMs: 30_000, answers: { status: 1 } },
    {
      from: 'B.6',
      call: agent('getOOMEvent', {}),
      timeoutMs: 'none',
      fails: { codes: ['INTERNAL'], text: /^Dead agent/ },
    },
  ]
}

function initOf(name: string, containerId: string): ShimProcess {
  return { name, key: { containerId, execId: containerId } }
}

function rootPathOf({ key }: ShimProcess): string {
  return `${SHARED_FOLDER}${key.containerId}/rootfs`
}

function memoryWatched(): Step {
  return { from: 'M.1, 7', loop: 'out of memory', call: agent('getOOMEvent', {}), timeoutMs: 'none' }
}

function created(from: string, init: ShimProcess, args: readonly string[]): readonly Step[] {
  const id = init.key.containerId
  const OCI = shimSpec({
    words: GO_WORDS,
    kind: init === PAUSE ? 'pause' : 'app',
    args,
    rootPath: rootPathOf(init),
    cgroupsPath: `${POD_SLICE}:cri-containerd:${id}`,
  })
  return [
    { from: 'E.5', shares: rootPathOf(init) },
    { from, call: agent('createContainer', { ...init.key, OCI, sandboxPidns: init !== PAUSE }) },
  ]
}

function allKilled({ key: { containerId } }: ShimProcess): Step {
  return { from: 'M.1, 11', call: agent('signalProcess', { containerId, execId: '', signal: SIGKILL }) }
}
