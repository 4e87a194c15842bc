import type { ChildProcess } from 'node:child_process'
import { join } from 'node:path'
import type { JsonObject } from '@bufbuild/protobuf'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { statusCodeName } from '../../../../src/base/errors.ts'
import { endChild } from '../../../support/processes.ts'
import { temporaryFolder } from '../../../support/temporary-folder.ts'
import { startDaemonProcess } from '../../../support/wing/daemon-process.ts'
import { leftovers } from '../../../support/wing/leftovers.ts'
import { image } from '../../../support/wing/real-wing.ts'
import { tinyGuest } from '../../../support/wing/tiny-guest.ts'
import { ReflectingClient } from '../../api/reflecting-client.ts'
import { parseMetrics } from '../../guest/prometheus-client.ts'

const INSTANCES = 'microvm.instance.v1.InstanceService'
const SECRETS = 'microvm.instance.v1.SecretService'
const HANDOVER = 'microvm.instance.v1.Handover'
const OUT_OF_BAND = 'metropolis.proto.vm.OOBManagement'
const HYPERVISOR = 'metropolis.proto.vm.Hypervisor'
const CONTROLLER = 'metropolis.proto.vm.VMController'

const SECRET = { uuid: '6b3f0c62-3d1e-4f0a-9a55-0f4f8f0c2d11' }
const key = 'web'

/** In the life below. */
const NAMES = [
  key,
  'copy',
  'one',
  'root',
  'root-file',
  'data',
  'data-file',
  'other',
  'console',
  'output',
  'port',
]

type Call = readonly [service: string, method: string, request: JsonObject, status?: string]

/** Each method of the daemon at least once, in an order in which most succeed. */
function life(disks: string): readonly Call[] {
  const disk = (name: string, sizeMib: number) => ({
    file: { path: image(disks, name, sizeMib), access: 'READ_WRITE' },
  })
  const specification = {
    board: { machine: 'pc-q35-7.2', memoryMib: '64', cpus: 1, kernel: tinyGuest(disks, 'count') },
    devices: {
      root: { backend: 'root-file', slot: 3, disk: { serial: 'root' } },
      port: { slot: 4, rootPort: {} },
      console: { backend: 'output', serial: {} },
    },
    backends: { 'root-file': disk('root', 16), output: { console: {} } },
  }
  const data = { backend: 'data-file', port: 'port', disk: { serial: 'data' } }
  return [
    [INSTANCES, 'Expand', { document: '{}' }, 'INVALID_ARGUMENT'],
    [INSTANCES, 'EnsureInstance', { properties: { key }, specification }],
    [INSTANCES, 'GetInstance', { key }],
    [INSTANCES, 'ListInstances', {}],
    [INSTANCES, 'WatchInstances', {}],
    [INSTANCES, 'ChangeState', { key, change: 'RUN' }],
    [OUT_OF_BAND, 'Console', {}],
    [OUT_OF_BAND, 'Reset', {}],
    [INSTANCES, 'Attach', { key }],
    [INSTANCES, 'AllocatePort', { key, container: 'c', stream: 'stdout' }],
    [INSTANCES, 'ListStreams', { key }],
    [INSTANCES, 'ConnectAgent', { key }, 'FAILED_PRECONDITION'],
    [INSTANCES, 'ListCalls', {}],
    [INSTANCES, 'GetMetrics', {}],
    [INSTANCES, 'Snapshot', { key, name: 'one' }],
    [INSTANCES, 'ListSnapshots', { key }],
    [INSTANCES, 'Plug', { key, deviceKey: 'data', device: data, backend: disk('data', 8) }],
    [INSTANCES, 'ReplaceBackend', { key, backendKey: 'data-file', backend: disk('other', 8) }],
    [INSTANCES, 'Unplug', { key, deviceKey: 'data', graceMs: 50 }],
    [INSTANCES, 'ChangeState', { key, change: 'KILL' }],
    [INSTANCES, 'Revert', { key, name: 'one' }],
    [INSTANCES, 'RemoveSnapshot', { key, name: 'one' }],
    [INSTANCES, 'ChangeState', { key, change: 'RUN' }],
    [INSTANCES, 'MigrateInstance', { key, toHost: 'b' }, 'FAILED_PRECONDITION'],
    [INSTANCES, 'ListHosts', {}, 'FAILED_PRECONDITION'],
    [INSTANCES, 'DrainHost', { draining: true }, 'FAILED_PRECONDITION'],
    [HANDOVER, 'Move', {}, 'PERMISSION_DENIED'],
    [HANDOVER, 'FenceVolume', {}, 'PERMISSION_DENIED'],
    [HYPERVISOR, 'StartMigration', {}, 'PERMISSION_DENIED'],
    [CONTROLLER, 'EnsureMigrationTarget', {}, 'UNIMPLEMENTED'],
    [CONTROLLER, 'MigrationSwitchover', {}, 'UNIMPLEMENTED'],
    [CONTROLLER, 'RunLease', {}, 'UNIMPLEMENTED'],
    [INSTANCES, 'SuspendInstance', { key, name: 'saved', withoutAgent: true }],
    [INSTANCES, 'ListSaved', {}],
    [INSTANCES, 'CloneInstance', { saved: 'saved', count: 1, name: 'copy', withoutAgent: true }],
    [INSTANCES, 'Remove', { key: 'copy' }],
    [INSTANCES, 'DeleteSaved', { name: 'saved' }],
    [INSTANCES, 'EnsureTemplate', {}, 'INVALID_ARGUMENT'],
    [INSTANCES, 'ListTemplates', {}],
    [INSTANCES, 'RemoveTemplate', { name: 'template-000000000000' }, 'NOT_FOUND'],
    [SECRETS, 'SetSecret', { ...SECRET, value: 'c2VjcmV0' }],
    [SECRETS, 'ListSecrets', {}],
    [SECRETS, 'RemoveSecret', SECRET],
  ]
}

describe('a client that knows the daemon by reflection alone', () => {
  const state = join(temporaryFolder(), 'state')
  let daemon: ChildProcess
  let client: ReflectingClient

  beforeAll(async () => {
    daemon = await startDaemonProcess(state)
    client = new ReflectingClient(join(state, 'admin.sock'), { instance: key })
  })

  afterAll(async () => {
    // It is there after a failure only.
    await client.call(INSTANCES, 'Remove', { key }).catch(() => {})
    client.close()
    await endChild(daemon)
  })

  /** Those of instances, devices, backends and snapshots, whose number has no end. */
  async function namesInMetrics(): Promise<readonly string[]> {
    const [answer] = await client.call(INSTANCES, 'GetMetrics', {})
    const samples = parseMetrics(String(answer?.text)).flatMap((family) => family.samples)
    const words = samples.flatMap(({ labels }) => Object.values(labels)).flatMap((value) => value.split(' '))
    expect(words).toContain('removed')
    return words.filter((word) => NAMES.includes(word))
  }

  it('gets the answer of each method', async () => {
    const calls = life(temporaryFolder())
    const expected = calls.map(([service, method, , status = 'OK']) => `${service}/${method} ${status}`)
    const seen: string[] = []
    for (const [service, method, request] of calls)
      seen.push(`${service}/${method} ${await statusOf(client.call(service, method, request))}`)
    expect(seen).toEqual(expected)
    const services = [...new Set(calls.map(([service]) => service))]
    const told = await Promise.all(
      services.map(async (service) =>
        (await client.methods(service)).map(({ name }) => `${service}/${name}`),
      ),
    )
    expect(new Set(calls.map(([service, method]) => `${service}/${method}`))).toEqual(new Set(told.flat()))
    expect(await namesInMetrics()).toEqual([])
    // What held the memory of the clone ends once that is gone.
    await expect.poll(() => leftovers(state), { timeout: 20_000 }).toEqual([])
  })
})

/** OK only with an answer. */
async function statusOf(answers: Promise<readonly JsonObject[]>): Promise<string> {
  try {
    return (await answers).length > 0 ? 'OK' : 'no answer'
  } catch (error) {
    const { code } = error as { readonly code?: number }
    if (code === undefined) throw error
    return statusCodeName(code)
  }
}
