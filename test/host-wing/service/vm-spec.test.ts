import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import {
  type DeepPartial,
  File_Access,
  Instance,
  type Specification,
} from '../../../src/gen/microvm/instance/v1/instance.ts'
import { LeaseMode, VMSpec, VMSpec_StartMode } from '../../../src/gen/vm.ts'
import { machineOf, metadataOf, rootFileOf } from '../../../src/host/service/hypervisor/hypervisor-machine.ts'
import { nextRunId, podId } from '../../../src/host/service/hypervisor/run-id.ts'
import { readVmSpec } from '../../../src/host/service/hypervisor/vm-spec.ts'
import { specFromProto } from '../../../src/host/spec/from-proto.ts'
import { instanceJson } from '../../../src/microvm/machines/command.ts'
import { microvm } from '../../support/microvm/run-microvm.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import { specification } from '../../support/wing/requests.ts'

const RUN = {
  name: 'web',
  mode: VMSpec_StartMode.SM_RUN,
  leaseMode: LeaseMode.LM_STORAGE_LOCKING,
} satisfies DeepPartial<VMSpec>

const bytes = (change: Partial<VMSpec> = {}) =>
  VMSpec.encode(VMSpec.fromPartial({ ...RUN, ...change })).finish()
const text = (change: Partial<VMSpec> = {}) => Buffer.from(bytes(change)).toString('base64')
const base64 = (...parts: readonly Uint8Array[]) => Buffer.concat(parts).toString('base64')

const FIRST_ERRORS: readonly (readonly [
  what: string,
  text: string | undefined,
  message: string,
  status: number,
])[] = [
  ['nothing', undefined, 'missing, want a VMSpec of proto/vm.proto in base64', 2],
  ['an empty text', '', 'missing, want a VMSpec of proto/vm.proto in base64', 2],
  ['another text', '{"name":"web"}', 'not base64, want a VMSpec of proto/vm.proto in base64', 2],
  ['half a text', `${text()}=`, 'not base64, want a VMSpec of proto/vm.proto in base64', 2],
  ['4 MiB', 'A'.repeat(4 << 20), '4194304 bytes, want at most 131072', 2],
  ['half a message', base64(bytes().subarray(0, 3)), 'not a VMSpec of proto/vm.proto: ', 2],
  ['a field of another type', base64(Buffer.from([0x08, 0x01])), 'field 1: unknown, want a VMSpec', 2],
  ['an unknown field', base64(bytes(), Buffer.from([0x40, 1])), 'field 8: unknown, want a VMSpec', 2],
  [
    'an unknown field of the image',
    base64(bytes(), Buffer.from([0x22, 2, 0x10, 1])),
    'initial_image: field 2: unknown, want a VMSpec',
    2,
  ],
  ['no name', text({ name: '' }), 'name: missing, want the key of the machine', 2],
  ['a path as the name', text({ name: 'a/b' }), 'name: ', 2],
  ['no mode', text({ mode: 0 }), 'mode: SM_UNKNOWN, want SM_RUN, SM_PREPARE_IMAGE or', 2],
  ['mode 9', base64(bytes(), Buffer.from([0x18, 9])), 'mode: 9, want SM_RUN, SM_PREPARE_IMAGE or', 2],
  ['a migration', text({ mode: 3 }), 'mode: SM_INCOMING_MIGRATION: want controller_endpoint with it', 2],
  ['no image', text({ mode: 2 }), 'initial_image.url: missing, want it with SM_PREPARE_IMAGE', 2],
  ['no leases', text({ leaseMode: 0 }), 'lease_mode: LM_UNKNOWN, want LM_STORAGE_LOCKING or LM_FULL', 2],
  ['full leases', text({ leaseMode: 2 }), 'lease_mode: LM_FULL_LEASES: want controller_endpoint with', 2],
  ['a controller', text({ controllerEndpoint: 'a' }), 'controller_endpoint: "a", want HOST:PORT, such', 2],
  [
    'a namespace with a path',
    text({ controllerEndpoint: 'a:1', namespace: 'a/b' }),
    'namespace: "a/b", want 1 to 63 of a-z',
    2,
  ],
  [
    'a controller of no host',
    text({ controllerEndpoint: 'a:1' }),
    'controller_endpoint: want --config FILE with [host]',
    2,
  ],
  ['a name as the address', text({ address: ['web'] }), 'address: "web" is no IP address', 2],
  ['two addresses', text({ address: ['10.0.0.2', '10.0.0.3'] }), 'address: two of ipv4, want at most one', 2],
  ['loopback', text({ address: ['127.0.0.2'] }), 'address: network_config.v4.ip 127.0.0.2 is a loopback', 2],
  ['a network', text({ address: ['10.0.0.0/8'] }), 'address: network_config.v4.ip 10.0.0.0/8: a point', 2],
  [
    'a network of ipv6',
    text({ address: ['fd00::5/32'] }),
    'address: network_config.v6.ip fd00::5/32: a p',
    2,
  ],
  [
    '128 bits of ipv4',
    text({ address: ['10.0.0.5/128'] }),
    'address: network_config.v4.ip 10.0.0.5/128: ',
    2,
  ],
  [
    'the peer itself',
    text({ address: ['169.254.1.1'] }),
    'address: network_config.v4: ip and peer_ip are',
    2,
  ],
]

describe('VM_SPEC', () => {
  it.each(FIRST_ERRORS)('is refused in one line when it is %s', async (_, vmSpec, message, status) => {
    const folder = temporaryFolder()
    const file = join(folder, 'web.json')
    writeFileSync(
      file,
      JSON.stringify(instanceJson(Instance.fromPartial({ specification: specification() }))),
    )
    const words = ['hypervisor', '--machine', file, '--state', join(folder, 'state')]
    const run = await microvm(words, { env: vmSpec === undefined ? {} : { VM_SPEC: vmSpec } })
    expect(run).toEqual({
      status,
      stdout: '',
      stderr: expect.stringContaining(`microvm: VM_SPEC: ${message}`),
    })
    expect(run.stderr.trimEnd()).not.toContain('\n')
  })

  it('may have the line ends of base64(1)', () => {
    expect(readVmSpec(`${text().slice(0, 4)}\n${text().slice(4)}\n`)).toMatchObject({ name: 'web' })
  })
})

const spec = (change: Partial<VMSpec> = {}) => readVmSpec(text(change))

describe('the machine of a hypervisor', () => {
  const METADATA = '/run/web/metadata.pb'
  const of = (change: Partial<VMSpec>, machine: DeepPartial<Specification> = {}) =>
    machineOf(specification(machine), spec(change), METADATA)

  it('tells the guest its name and its addresses', () => {
    const told = metadataOf(spec({ address: ['fd00::2', '10.0.0.2/32'] }), ['10.0.0.1'])
    expect(told).toEqual({
      name: 'web',
      networkConfig: {
        v4: { ip: '10.0.0.2', peerIp: '10.0.0.1' },
        v6: { ip: 'fd00::2', peerIp: 'fd6d:6963:726f:766d::1' },
      },
    })
    expect(() => metadataOf(spec(), ['web'])).toThrow('--peer: "web" is no IP address')
    expect(() => metadataOf(spec(), ['10.0.0.1', '10.0.0.2'])).toThrow(
      '--peer: want at most one of each family',
    )
    expect(metadataOf(spec(), [])).toEqual({ name: 'web', networkConfig: { v4: undefined, v6: undefined } })
  })

  it('has the metadata, and a card with a tap only for an address', () => {
    const { devices, backends } = of({})
    expect(devices['vm-metadata']).toMatchObject({ firmwareItem: {}, backend: 'vm-metadata-content' })
    expect(backends['vm-metadata-content']).toMatchObject({ content: { path: METADATA } })
    expect(Object.values(devices).some(({ nic }) => nic !== undefined)).toBe(false)
    const linked = of({ address: ['10.0.0.2'] })
    expect(linked.devices['vm-card']).toMatchObject({
      slot: 30,
      nic: { mac: expect.stringMatching(/^52:54:00:/) },
    })
    expect(linked.backends['vm-tap']?.tap?.interfaceName).toMatch(/^vm-[0-9a-f]{8}$/)
    expect(() => specFromProto(linked)).not.toThrow()
  })

  const card = { slot: 9, backend: 'net', nic: { mac: '52:54:00:00:00:09' } }

  it('keeps its own card with a tap, and refuses one that can have no address', () => {
    const own = of(
      { address: ['10.0.0.2'] },
      { devices: { card }, backends: { net: { tap: { interfaceName: 't' } } } },
    )
    expect(Object.keys(own.devices)).toEqual(['card', 'vm-metadata'])
    const bridged = { devices: { card }, backends: { net: { tap: { interfaceName: 't', bridge: 'br0' } } } }
    expect(of({}, bridged).devices.card).toBeDefined()
    expect(() => of({ address: ['10.0.0.2'] }, bridged)).toThrow(
      '--machine: backends.net.tap.bridge: not possible with an address of VM_SPEC',
    )
    const by = { devices: { card }, backends: { net: { passt: {} } } }
    expect(() => of({ address: ['10.0.0.2'] }, by)).toThrow(
      'VM_SPEC: address: the machine has 0 cards with a tap',
    )
    expect(() => of({}, by)).not.toThrow()
  })

  it.each([
    ['devices', 'vm-metadata', { serial: {} }],
    ['backends', 'vm-metadata-content', { console: {} }],
    ['devices', 'vm-card', { serial: {} }],
    ['backends', 'vm-tap', { console: {} }],
  ])('refuses %s.%s of the machine, which it would replace', (map, key, value) => {
    expect(() => of({ address: ['10.0.0.2'] }, { [map]: { [key]: value } })).toThrow(
      expect.objectContaining({
        code: 'INVALID_ARGUMENT',
        message: `--machine: ${map}.${key}: VM_SPEC gives it, want another key`,
      }),
    )
  })

  it('boots from its disk root', () => {
    const disk = (slot: number, backend: string) => ({ slot, backend, disk: { serial: backend } })
    const file = (path: string, access: File_Access = File_Access.READ_WRITE) => ({ file: { path, access } })
    const board = { kernel: '' }
    expect(rootFileOf(specification(), true)).toBe('/disks/root-16M')
    expect(rootFileOf(specification({ devices: {}, backends: {} }), false)).toBe(undefined)
    expect(() => rootFileOf(specification({ devices: {}, backends: {} }), true)).toThrow(
      'devices.root: no disk',
    )
    expect(() => rootFileOf(specification({ board, devices: {}, backends: {} }), false)).toThrow(
      'devices.root',
    )
    const two = { root: disk(5, 'b'), data: disk(3, 'c') }
    const backends = { b: file('/b'), c: file('/c') }
    expect(() => rootFileOf(specification({ board, devices: two, backends }), false)).toThrow(
      'devices.root.slot: want the lowest of the disks, which the firmware boots',
    )
    expect(rootFileOf(specification({ devices: two, backends }), true)).toBe('/b')
    const readOnly = { devices: { root: disk(5, 'b') }, backends: { b: file('/b', File_Access.READ_ONLY) } }
    expect(() => rootFileOf(specification(readOnly), true)).toThrow('want READ_WRITE for the initial image')
  })
})

describe('the id of a run', () => {
  it('is the time, and greater than the last one when the clock goes back', async () => {
    const folder = temporaryFolder()
    expect(await nextRunId(folder, 1000n)).toBe(1000n)
    expect(await nextRunId(folder, 900n)).toBe(1001n)
    expect(await nextRunId(folder, 5000n)).toBe(5000n)
    expect(readFileSync(join(folder, 'run-id'), 'utf8')).toBe('5000\n')
  })

  it.each([
    ['of another program', 'not the id of a run, want it removed or repaired'],
    [`${2n ** 64n - 1n}`, 'no greater number is left, want it removed'],
  ])('is refused behind %j', async (last, message) => {
    const folder = temporaryFolder()
    writeFileSync(join(folder, 'run-id'), last)
    await expect(nextRunId(folder, 1n)).rejects.toThrow(`${folder}/run-id: ${message}`)
  })
})

it('the id of a pod is random, and stays with the folder', async () => {
  const [folder, other] = [temporaryFolder(), temporaryFolder()]
  const id = await podId(folder)
  expect(await podId(folder)).toBe(id)
  expect(await podId(other)).not.toBe(id)
  writeFileSync(join(folder, 'pod-id'), 'a/b')
  await expect(podId(folder)).rejects.toThrow(`${folder}/pod-id: not the id of a pod, want it removed`)
})
