import { randomBytes } from 'node:crypto'
import { expect } from 'vitest'
import { SIGKILL } from '../../src/base/signals.ts'
import { containerSpec } from '../../src/microvm/run/container-spec.ts'
import { execProcess } from './containers.ts'
import { exited, outputs, type ShimProcess, started, written } from './process-steps.ts'
import { agent, type Ending, health, type Sequence, type Step, type Surroundings } from './sequence.ts'

const SANDBOX = '8e'.repeat(32)
const INIT: ShimProcess = {
  name: 'container',
  key: { containerId: '2f'.repeat(32), execId: '2f'.repeat(32) },
}
const ADDED: ShimProcess = { name: 'exec', key: { containerId: INIT.key.containerId, execId: 'exec-1' } }
/** The folder into which agent-ctl unpacks images. It runs on the same machine as the agent. */
const ROOT_PATH = `/run/kata-containers/testing/${INIT.key.containerId}/rootfs`

/**
 * The calls of the reference's agent-ctl: each of its commands once, with the values that the tool generates (J.3). No
 * call has a time limit, and `grpc.Health` has a connection of its own (J.1).
 */
export function agentCtl(surroundings: Surroundings, ending: Ending): Sequence {
  return {
    caller: 'agent-ctl',
    metadata: { 'agent-ctl-cfg': 'auto-values' },
    timeoutMs: 'none',
    hasHealthConnection: true,
    containers: [INIT.key.containerId],
    sharedCgroups: [],
    steps: [
      { from: 'J.3', call: health('check', { service: '' }), answers: { status: 1 } },
      { from: 'J.3', call: health('version', { service: '' }), answers: { grpcVersion: '0.0.1' } },
      ...sandbox(surroundings),
      ...guest(surroundings),
      ...network(),
      ...files(),
      ...container(),
      ...processes(),
      ...removal(),
      ...(ending === 'DestroySandbox' ? destroyed() : deadAgent()),
    ],
  }
}

function sandbox({ roots }: Surroundings): readonly Step[] {
  const storages = roots === 'shared folder' ? [] : [...roots([ROOT_PATH])]
  return [
    { from: 'J.3', call: agent('createSandbox', { sandboxId: SANDBOX, storages }) },
    { from: 'J.3', loop: 'out of memory', call: agent('getOOMEvent', {}) },
    {
      from: 'J.3',
      call: agent('getGuestDetails', {}),
      answers: { agentDetails: { version: expect.any(String) } },
    },
  ]
}

function guest({ isGuest }: Surroundings): readonly Step[] {
  const from = 'J.3'
  const pending = 'guest services'
  const now = BigInt(Math.floor(Date.now() / 1000))
  // These calls change the clock and the random pool, so they are made only in a guest.
  const ofGuest: readonly Step[] = [
    { from, call: agent('setGuestDateTime', { Sec: now, Usec: 0n }) },
    { from, call: agent('reseedRandomDev', { data: randomBytes(64) }) },
  ]
  const disabled = { codes: ['INTERNAL'], text: /mem-agent is disabled/ } as const
  return [
    ...(isGuest ? ofGuest : []),
    { from, call: agent('onlineCPUMem', { wait: false, nbCpus: 0, cpuOnly: false }) },
    { from, call: agent('memHotplugByProbe', { memHotplugProbeAddr: [] }) },
    {
      from: 'C.34',
      call: agent('addSwap', { PCIPath: [] }),
      fails: { codes: ['INTERNAL', 'INVALID_ARGUMENT'] },
    },
    { from, call: agent('getMetrics', {}), answers: { metrics: expect.stringMatching(/^# (HELP|TYPE) /m) } },
    { from, call: agent('setPolicy', { policy: 'package agent_policy\n' }), pending },
    { from: 'C.38', call: agent('memAgentMemcgSet', {}), pending, fails: disabled },
    { from: 'C.38', call: agent('memAgentCompactSet', {}), pending, fails: disabled },
  ]
}

/** The network commands; agent-ctl sends three of them with empty requests. */
function network(): readonly Step[] {
  const empty = { from: 'B.5', fails: { codes: ['INVALID_ARGUMENT'] } } as const
  const from = 'J.3'
  return [
    { ...empty, call: agent('updateInterface', {}) },
    { ...empty, call: agent('updateRoutes', {}) },
    { ...empty, call: agent('addARPNeighbors', {}) },
    {
      from,
      call: agent('listInterfaces', {}),
      answers: { Interfaces: expect.arrayContaining([expect.objectContaining({ name: 'lo' })]) },
    },
    { from, call: agent('listRoutes', {}), answers: { Routes: expect.any(Array) } },
    { from, call: agent('getIPTables', { isIpv6: false }) },
  ]
}

/** A file in two chunks, an empty file, a directory and a link; the modes of directories contain Go's own bits. */
function files(): readonly Step[] {
  const folder = '/run/kata-containers/shared/containers/agent-ctl'
  const owned = { dirMode: 0o2_0000_000_750, uid: 0, gid: 0 }
  const copied = (name: string, file: Parameters<typeof agent<'copyFile'>>[1]): Step => ({
    from: 'C.32',
    call: agent('copyFile', { ...owned, ...file, path: `${folder}/${name}` }),
    pending: 'guest services',
  })
  const chunk = Buffer.alloc(2 ** 20, 'a')
  const whole = { fileSize: 2n ** 20n + 1n, fileMode: 0o100_644 }
  return [
    copied('file', { ...whole, offset: 0n, data: chunk }),
    copied('file', { ...whole, offset: 2n ** 20n, data: Buffer.from('b') }),
    copied('empty', { fileSize: 0n, fileMode: 0o100_600 }),
    copied('folder', { fileMode: 0o040_755 }),
    copied('link', { fileMode: 0o120_777, data: Buffer.from('file') }),
    {
      from: 'C.35',
      call: agent('getVolumeStats', { volumeGuestPath: '/run/kata-containers' }),
      answers: { usage: [{ unit: 1 }, { unit: 2 }] },
    },
  ]
}

/** The container has its own pid and network namespaces, and no cgroup path. */
function container(): readonly Step[] {
  const { containerId, execId } = INIT.key
  const from = 'J.3'
  const namespaces = ['pid', 'network', 'ipc', 'uts', 'mount'].map((Type) => ({ Type }))
  const user = { uid: 0, gid: 0, additionalGids: [] }
  const unset = { env: [], cwd: '/', terminal: undefined, hostname: '' }
  const args = ['/bin/sh', '-c', 'ls /sys/class/net; cat']
  const spec = containerSpec({ id: containerId, args, user, rootPath: ROOT_PATH, ...unset })
  const OCI = {
    ...spec,
    Root: { Path: ROOT_PATH, Readonly: true },
    Process: { ...spec.Process, Rlimits: [{ Type: 'RLIMIT_NOFILE', Soft: 1024n, Hard: 1024n }] },
    Linux: { ...spec.Linux, CgroupsPath: '', Namespaces: namespaces },
  }
  return [
    { from: 'E.5', shares: ROOT_PATH },
    { from, call: agent('createContainer', { containerId, execId, OCI }) },
    started(from, INIT),
    ...outputs(from, INIT),
    { from: 'J.3', shown: 'lo\n', by: 'stdout of container' },
    {
      from,
      call: agent('statsContainer', { containerId }),
      answers: { cgroupStats: { cpuStats: expect.anything() } },
    },
    { from, call: agent('pauseContainer', { containerId }) },
    { from, call: agent('resumeContainer', { containerId }) },
    { from: 'C.7', call: agent('updateContainer', { containerId }) },
  ]
}

/** The exec id is the container's id unless another is given. */
function processes(): readonly Step[] {
  const from = 'J.3'
  const process = execProcess(['/bin/sh', '-c', 'cat; exit 9'])
  return [
    {
      from: 'C.4',
      call: agent('execProcess', { ...INIT.key, process }),
      fails: { codes: ['INTERNAL'], text: /already exists/ },
    },
    { from, call: agent('execProcess', { ...ADDED.key, process }) },
    {
      from: 'C.14',
      call: agent('readStdout', { ...ADDED.key, len: 0 }),
      answers: { data: new Uint8Array(0) },
    },
    ...outputs(from, ADDED),
    {
      from: 'C.16',
      call: agent('ttyWinResize', { ...ADDED.key, row: 25, column: 80 }),
      fails: { codes: ['UNAVAILABLE'], text: /no tty/ },
    },
    written(from, ADDED, 'typed'),
    { from, call: agent('closeStdin', ADDED.key) },
    { from, ended: 'stdout of exec', brought: 'typed' },
    { from, ended: 'stderr of exec', brought: '' },
    exited(from, ADDED, 9),
  ]
}

function removal(): readonly Step[] {
  const from = 'J.3'
  const { containerId } = INIT.key
  return [
    { from, call: agent('signalProcess', { ...INIT.key, signal: SIGKILL }) },
    { from, ended: 'stdout of container' },
    { from, ended: 'stderr of container', brought: '' },
    exited(from, INIT, 128 + SIGKILL),
    { from, call: agent('removeContainer', { containerId }) },
    { from: 'C.3', call: agent('removeContainer', { containerId }), fails: { codes: ['INTERNAL'] } },
  ]
}

function destroyed(): readonly Step[] {
  return [
    { from: 'J.3', call: agent('destroySandbox', {}) },
    { from: 'C.33', ended: 'out of memory', fails: { codes: ['INTERNAL', 'UNAVAILABLE'] } },
    { from: 'C.26', connection: 'ended' },
  ]
}

function deadAgent(): readonly Step[] {
  return [
    { from: 'I.13', connection: 'agent dies' },
    { from: 'B.6', ended: 'out of memory', fails: { codes: ['UNAVAILABLE'] } },
    { from: 'B.1', connection: 'breaks' },
    { from: 'J.3', call: health('check', { service: '' }), answers: { status: 1 } },
    { from: 'B.6', call: agent('getOOMEvent', {}), fails: { codes: ['INTERNAL'], text: /^Dead agent/ } },
  ]
}
