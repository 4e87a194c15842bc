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

/** The parent cgroup of all containers. The cgroup paths have systemd's form, which no recording has. */
const POD_SLICE = 'kubepods-besteffort-pod51c0ffee.slice'

/**
 * The Go runtime's calls for a pod of a pause container and two others in its pid namespace. Init has the container's id as
 * its exec id. The long-lived connection breaks once.
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
      { call: health('check', {}), timeoutMs: 30_000, answers: { status: 1 } },
      ...networkSteps(),
      ...sandbox(surroundings),
      ...pause(),
      ...brokenConnection(),
      ...resources(),
      ...app(),
      // In a guest the recordings show these steps.
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
    ...sandboxCreated(['go-shim.cri-pod-five-containers', 5], request, surroundings),
    {
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
  return [...created(PAUSE, RESTING), memoryWatched(), started(PAUSE), exitAwaited(PAUSE)]
}

/** The pending calls fail with the connection, and the shim repeats them. */
function brokenConnection(): readonly Step[] {
  const lost = { fails: { codes: ['UNAVAILABLE'] } } as const
  return [
    { connection: 'breaks' },
    { ...lost, ended: 'out of memory' },
    { ...lost, ended: 'exit of pause' },
    { call: health('check', {}), timeoutMs: 30_000, answers: { status: 1 } },
    memoryWatched(),
    exitAwaited(PAUSE),
  ]
}

function resources(): readonly Step[] {
  return [
    { call: agent('onlineCPUMem', { nbCpus: 2, cpuOnly: true }) },
    {
      call: agent('memHotplugByProbe', { memHotplugProbeAddr: [0x1_0000_0000n] }),
      // The shim sends it only if GetGuestDetails reports a probe file; few kernels have one.
      answers: {},
      fails: { codes: ['FAILED_PRECONDITION'], text: /probe/ },
    },
    { call: agent('onlineCPUMem', { nbCpus: 0, cpuOnly: false }) },
    shmResized('32M'),
  ]
}

function app(): readonly Step[] {
  const { containerId } = APP.key
  return [
    ...created(APP, TALKING),
    started(APP),
    ...outputs(APP),
    {
      timer: 'statistics',
      everyMs: 10_000,
      call: agent('statsContainer', { containerId }),
      answers: { cgroupStats: { pidsStats: { current: expect.any(BigInt) } } },
    },
    { shown: ` on ${POD_HOSTNAME}\n`, by: 'stdout of app' },
    written(APP, 'hello\n'),
    { shown: 'hello\n', by: 'stdout of app' },
    { call: agent('closeStdin', APP.key), timeoutMs: 'none' },
    { shown: 'input ended\n', by: 'stdout of app' },
  ]
}

function terminal(): readonly Step[] {
  const size = { row: 40, column: 120 }
  return [
    {
      call: agent('execProcess', {
        ...TERMINAL.key,
        process: execProcess(GO_WORDS, INTERACTIVE, 'addedTerminal'),
      }),
    },
    output(TERMINAL, 'stdout'),
    { call: agent('ttyWinResize', { ...TERMINAL.key, ...size }), timeoutMs: 'none' },
    written(TERMINAL, 'x\n'),
    { ended: 'stdout of terminal', brought: /^(x\r\n)?40 120\r\ntyped x\r\n$/ },
    exited(TERMINAL, 7),
  ]
}

/** A probe sees the remounted shared memory, and the pause container as the pod's first process. */
function readiness(): readonly Step[] {
  const seen = `32768\n${RESTING.join(' ')} `
  return [
    { call: agent('execProcess', { ...READINESS.key, process: execProcess(GO_WORDS, PROBE) }) },
    ...outputs(READINESS),
    written(READINESS, 'ready?\n'),
    { call: agent('closeStdin', READINESS.key), timeoutMs: 'none' },
    { ended: 'stdout of probe', brought: `ready?\n${seen}` },
    { ended: 'stderr of probe', brought: '' },
    // It has exited, but no call has waited for it yet.
    signalled(READINESS, SIGTERM),
    exited(READINESS, 3),
  ]
}

function outOfMemory(): readonly Step[] {
  return [
    { call: agent('execProcess', { ...HOG.key, process: execProcess(GO_WORDS, HUNGRY) }) },
    ...outputs(HOG),
    { shown: `${APP.key.containerId}\n`, by: 'out of memory' },
    { ended: 'stdout of hog', brought: '' },
    { ended: 'stderr of hog' },
    exited(HOG, 128 + SIGKILL),
  ]
}

/** Sends SIGTERM, which the app handles, then SIGKILL to all its processes, then a signal after its end. */
function endOfApp(): readonly Step[] {
  return [
    signalled(APP, SIGTERM),
    { shown: 'got TERM\n', by: 'stdout of app' },
    allKilled(APP),
    {
      ended: 'stdout of app',
      brought: new RegExp(`^pid (?!1 )\\d+ on ${POD_HOSTNAME}\nhello\ninput ended\ngot TERM\n$`),
    },
    { ended: 'stderr of app', brought: 'problem\n' },
    exited(APP, 128 + SIGKILL),
    {
      ...signalled(APP, SIGKILL),
      answers: {},
      fails: { codes: ['NOT_FOUND', 'INTERNAL'], text: /ESRCH: No such process|not found|not exist/ },
    },
    { stop: 'statistics' },
    removed(APP),
    { call: agent('removeStaleVirtiofsShareMounts', {}) },
  ]
}

/** SIGTERM ends a container without a handler for it. */
function sidecar(): readonly Step[] {
  return [
    ...created(SIDECAR, RESTING),
    started(SIDECAR),
    ...outputs(SIDECAR),
    signalled(SIDECAR, SIGTERM),
    { ended: 'stdout of sidecar', brought: '' },
    { ended: 'stderr of sidecar', brought: '' },
    exited(SIDECAR, 128 + SIGKILL),
    removed(SIDECAR),
  ]
}

/** The watcher of out-of-memory events polls again after every error, except when the connection was closed. */
function destroyed(): readonly Step[] {
  return [
    allKilled(PAUSE),
    { ended: 'exit of pause', answers: { status: 128 + SIGKILL } },
    removed(PAUSE),
    { call: agent('destroySandbox', {}) },
    { ended: 'out of memory', fails: { codes: ['INTERNAL', 'UNAVAILABLE'] } },
    { connection: 'ended' },
    { call: agent('getOOMEvent', {}), timeoutMs: 'none', fails: { codes: ['UNAVAILABLE'] } },
  ]
}

/** The watcher of out-of-memory events stops at the error `Dead agent`. */
function deadAgent(): readonly Step[] {
  const lost = { fails: LOST } as const
  return [
    { connection: 'agent dies' },
    { ...lost, ended: 'out of memory' },
    { ...lost, ended: 'exit of pause' },
    { connection: 'breaks' },
    { call: health('check', {}), timeoutMs: 30_000, answers: { status: 1 } },
    {
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
  return { loop: 'out of memory', call: agent('getOOMEvent', {}), timeoutMs: 'none' }
}

function created(init: ShimProcess, args: readonly string[]): readonly Step[] {
  const id = init.key.containerId
  const OCI = shimSpec({
    words: GO_WORDS,
    kind: init === PAUSE ? 'pause' : 'app',
    args,
    rootPath: rootPathOf(init),
    cgroupsPath: `${POD_SLICE}:cri-containerd:${id}`,
  })
  return [
    { shares: rootPathOf(init) },
    { call: agent('createContainer', { ...init.key, OCI, sandboxPidns: init !== PAUSE }) },
  ]
}

function allKilled({ key: { containerId } }: ShimProcess): Step {
  return { call: agent('signalProcess', { containerId, execId: '', signal: SIGKILL }) }
}
