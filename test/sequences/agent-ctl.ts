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
/** agent-ctl unpacks images here; it runs on the agent's machine. */
const ROOT_PATH = `/run/kata-containers/testing/${INIT.key.containerId}/rootfs`

/**
 * The calls of the reference's agent-ctl that its recordings do not show. No call has a time limit, and `grpc.Health` has
 * its own connection.
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
      { call: health('check', { service: '' }), answers: { status: 1 } },
      { call: health('version', { service: '' }), answers: { grpcVersion: '0.0.1' } },
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
    { call: agent('createSandbox', { sandboxId: SANDBOX }) },
    { loop: 'out of memory', call: agent('getOOMEvent', {}) },
    {
      call: agent('getGuestDetails', {}),
      answers: { agentDetails: { version: expect.any(String) } },
    },
  ]
}

function files(): readonly Step[] {
  const folder = '/run/kata-containers/shared/containers/agent-ctl'
  const owned = { dirMode: 0o2_0000_000_750, uid: 0, gid: 0 }
  const copied = (name: string, file: Parameters<typeof agent<'copyFile'>>[1]): Step => ({
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
      call: agent('getVolumeStats', { volumeGuestPath: '/run/kata-containers' }),
      answers: { usage: [{ unit: 1 }, { unit: 2 }] },
    },
  ]
}

/** The recorded container, which has its own pid and network namespaces and no cgroup path, with another command. */
function container(): readonly Step[] {
  const { containerId, execId } = INIT.key
  const { OCI: recorded } = recordedRequest(CreateContainerRequest, 'agent-ctl.every-command', 20)
  const OCI = {
    ...recorded,
    Root: { ...recorded?.Root, Path: ROOT_PATH },
    Process: { ...recorded?.Process, Args: ['/bin/sh', '-c', 'ls /sys/class/net; cat'] },
  }
  return [
    { shares: ROOT_PATH },
    { call: agent('createContainer', { containerId, execId, OCI }) },
    started(INIT),
    ...outputs(INIT),
    { shown: 'lo\n', by: 'stdout of container' },
  ]
}

function processes(): readonly Step[] {
  const { process: recorded } = recordedRequest(ExecProcessRequest, 'agent-ctl.every-command', 29)
  const process = { ...recorded, Args: ['/bin/sh', '-c', 'cat; exit 9'] }
  return [
    {
      call: agent('execProcess', { ...INIT.key, process }),
      fails: { codes: ['INTERNAL'], text: /already exists/ },
    },
    { call: agent('execProcess', { ...ADDED.key, process }) },
    {
      call: agent('readStdout', { ...ADDED.key, len: 0 }),
      answers: { data: new Uint8Array(0) },
    },
    ...outputs(ADDED),
    written(ADDED, 'typed'),
    { call: agent('closeStdin', ADDED.key) },
    { ended: 'stdout of exec', brought: 'typed' },
    { ended: 'stderr of exec', brought: '' },
    exited(ADDED, 9),
  ]
}

function removal(): readonly Step[] {
  const { containerId } = INIT.key
  return [
    { call: agent('signalProcess', { ...INIT.key, signal: SIGKILL }) },
    { ended: 'stdout of container' },
    { ended: 'stderr of container', brought: '' },
    exited(INIT, 128 + SIGKILL),
    { call: agent('removeContainer', { containerId }) },
    { call: agent('removeContainer', { containerId }), fails: { codes: ['INTERNAL'] } },
  ]
}

function destroyed(): readonly Step[] {
  return [
    { call: agent('destroySandbox', {}) },
    { ended: 'out of memory', fails: { codes: ['INTERNAL', 'UNAVAILABLE'] } },
    { connection: 'ended' },
  ]
}

function deadAgent(): readonly Step[] {
  return [
    { connection: 'agent dies' },
    { ended: 'out of memory', fails: LOST },
    { connection: 'breaks' },
    { call: health('check', { service: '' }), answers: { status: 1 } },
    { call: agent('getOOMEvent', {}), fails: { codes: ['INTERNAL'], text: /^Dead agent/ } },
  ]
}
