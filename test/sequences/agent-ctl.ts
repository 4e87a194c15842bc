import { expect } from 'vitest'
import { SIGKILL } from '../../src/base/signals.ts'
import { CreateContainerRequest, ExecProcessRequest } from '../../src/gen/agent.ts'
import { recordedRequest } from '../recordings/recorded-request.ts'
import { exited, outputs, type ShimProcess, started, written } from './process-steps.ts'
import { agent, type Ending, health, LOST, type Sequence, type Step, type Surroundings } from './sequence.ts'

const SANDBOX = '8e'.repeat(32)
const INIT: ShimProcess = {
  name: 'container',
  key: { containerId: '2f'.repeat(32), execId: '2f'.repeat(32) },
}
const ADDED: ShimProcess = { name: 'exec', key: { containerId: INIT.key.containerId, execId: 'exec-1' } }
/** The folder into which agent-ctl unpacks images. It runs on the same machine as the agent. */
const ROOT_PATH = `/run/kata-containers/testing/${INIT.key.containerId}/rootfs`

/**
 * The calls of the reference's agent-ctl that its recordings do not show (J.3): a poll beside all others, an exec id that
 * collides, files in several chunks, and the end of a sandbox. No call has a time limit, and `grpc.Health` has a
 * connection of its own (J.1).
 */
export function agentCtl(_surroundings: Surroundings, ending: Ending): Sequence {
  return {
    caller: 'agent-ctl',
    metadata: {},
    timeoutMs: 'none',
    hasHealthConnection: true,
    containers: [INIT.key.containerId],
    sharedCgroups: [],
    steps: [
      { from: 'J.3', call: health('check', { service: '' }), answers: { status: 1 } },
      { from: 'J.3', call: health('version', { service: '' }), answers: { grpcVersion: '0.0.1' } },
      ...sandbox(),
      ...files(),
      ...container(),
      ...processes(),
      ...removal(),
      ...(ending === 'DestroySandbox' ? destroyed() : deadAgent()),
    ],
  }
}

function sandbox(): readonly Step[] {
  return [
    { from: 'J.3', call: agent('createSandbox', { sandboxId: SANDBOX }) },
    { from: 'J.3', loop: 'out of memory', call: agent('getOOMEvent', {}) },
    {
      from: 'J.3',
      call: agent('getGuestDetails', {}),
      answers: { agentDetails: { version: expect.any(String) } },
    },
  ]
}

/** A file in two chunks, an empty file, a directory and a link; the modes of directories contain Go's own bits. */
function files(): readonly Step[] {
  const folder = '/run/kata-containers/shared/containers/agent-ctl'
  const owned = { dirMode: 0o2_0000_000_750, uid: 0, gid: 0 }
  const copied = (name: string, file: Parameters<typeof agent<'copyFile'>>[1]): Step => ({
    from: 'C.32',
    call: agent('copyFile', { ...owned, ...file, path: `${folder}/${name}` }),
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

/** The recorded container, which has its own pid and network namespaces and no cgroup path, with another command. */
function container(): readonly Step[] {
  const { containerId, execId } = INIT.key
  const from = 'J.3'
  const { OCI: recorded } = recordedRequest(CreateContainerRequest, 'agent-ctl.every-command', 20)
  const OCI = {
    ...recorded,
    Root: { ...recorded?.Root, Path: ROOT_PATH },
    Process: { ...recorded?.Process, Args: ['/bin/sh', '-c', 'ls /sys/class/net; cat'] },
  }
  return [
    { from: 'E.5', shares: ROOT_PATH },
    { from, call: agent('createContainer', { containerId, execId, OCI }) },
    started(from, INIT),
    ...outputs(from, INIT),
    { from: 'J.3', shown: 'lo\n', by: 'stdout of container' },
  ]
}

/** The exec id is the container's id unless another is given. */
function processes(): readonly Step[] {
  const from = 'J.3'
  const { process: recorded } = recordedRequest(ExecProcessRequest, 'agent-ctl.every-command', 29)
  const process = { ...recorded, Args: ['/bin/sh', '-c', 'cat; exit 9'] }
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
    { from: 'B.6', ended: 'out of memory', fails: LOST },
    { from: 'B.1', connection: 'breaks' },
    { from: 'J.3', call: health('check', { service: '' }), answers: { status: 1 } },
    { from: 'B.6', call: agent('getOOMEvent', {}), fails: { codes: ['INTERNAL'], text: /^Dead agent/ } },
  ]
}
