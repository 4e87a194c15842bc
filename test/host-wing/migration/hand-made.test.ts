import { mkdirSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { describe, expect, it } from 'vitest'
import {
  Backend,
  Device,
  EnsureInstanceRequest,
  Layer,
  PlugRequest,
  SuspendInstanceRequest,
} from '../../../src/gen/microvm/instance/v1/instance.ts'
import { DocumentRecord, type InstanceRecord } from '../../../src/gen/microvm/instance/v1/records.ts'
import { type Manifest, readManifest, writeManifest } from '../../../src/host/migration/manifest.ts'
import { factsOf } from '../../../src/host/migration/memory-file.ts'
import { saveInstance } from '../../../src/host/migration/payloads/saved-instance.ts'
import { readState } from '../../../src/host/migration/state-file.ts'
import { expanded } from '../../support/host-wing/expansion.ts'
import { ADMIN, file } from '../../support/wing/requests.ts'
import { SuspendedWing } from '../../support/wing/suspended-wing.ts'

interface Change {
  readonly record?: (record: InstanceRecord) => Partial<InstanceRecord>
  readonly manifest?: Partial<Manifest>
  /** Files of the folder. */
  readonly files?: Readonly<Record<string, Buffer>>
}

/** Makes the folder anew as one would by hand: with another content, and digests that fit. */
async function rewrite(folder: string, { record = () => ({}), manifest = {}, files = {} }: Change) {
  const path = join(folder, 'state.binpb')
  const state = await readState(path)
  const bytes = saveInstance({
    record: { ...state, ...record(state) },
    ...{ steps: [], guest: undefined, savedMs: 1n, streams: [], rings: [] },
    compatibility: { qemuVersion: '7.2.0', kvm: false },
  })
  const before = await readManifest(folder)
  const facts = { ...before.files }
  for (const [name, content] of Object.entries({ ...files, 'state.binpb': bytes })) {
    mkdirSync(dirname(join(folder, name)), { recursive: true })
    writeFileSync(join(folder, name), content)
    facts[name] = await factsOf(join(folder, name))
  }
  rmSync(join(folder, 'manifest.json'))
  await writeManifest(folder, { ...before, ...manifest, files: facts })
}

const specified = (change: (spec: NonNullable<InstanceRecord['specification']>) => object) => ({
  record: ({ specification }: InstanceRecord) => ({
    specification: specification && { ...specification, ...change(specification) },
  }),
})

const onFile = (record: InstanceRecord) => {
  const base = record.specification?.backends['root-file']?.file?.path ?? ''
  const own = { id: 1, backend: 'root-file', base, sizeBytes: 2n ** 20n, active: true }
  return { lastLayer: 1, own }
}

const layered = (change: Partial<Layer>): Change => ({
  record: (record) => {
    const { own, lastLayer } = onFile(record)
    return { lastLayer, layers: [Layer.fromPartial({ ...own, ...change })] }
  },
})

/** A qcow2 header of version 3 that says its data are elsewhere. */
const ELSEWHERE = Buffer.alloc(512)
ELSEWHERE.write('QFI\xfb', 0, 'latin1')
ELSEWHERE.writeUInt32BE(3, 4)
ELSEWHERE.writeBigUInt64BE(4n, 72)

const unplugged = (request: Parameters<typeof PlugRequest.fromPartial>[0]): Change => ({
  manifest: {
    unplugged: Buffer.from(PlugRequest.encode(PlugRequest.fromPartial(request)).finish()).toString('base64'),
  },
})

const document = (change: Partial<DocumentRecord>): Change => ({
  record: () => ({ document: DocumentRecord.fromPartial({ given: 'kind: VM\nspec: {}', ...change }) }),
})

/** A record of a document whose machine is changed. */
const machine = ({
  devices,
  smbios = {},
}: {
  readonly devices?: object
  readonly smbios?: object
}): Change => {
  const made = expanded({ memory: 64 })
  return document({ saved: JSON.stringify({ ...made, smbios, devices: { ...made.devices, ...devices } }) })
}

const stream = { port: 1024, container: 'c', exec: '', stream: 'stdin', isLive: false }

const CASES: readonly (readonly [string, Change, string])[] = [
  [
    'a machine that changes with QEMU',
    specified(({ board }) => ({ board: { ...board, machine: 'q35' } })),
    'board.machine: q35 is another machine in each QEMU',
  ],
  [
    'a network in QEMU itself',
    specified(({ backends }) => ({
      backends: { ...backends, 'lan-tap': Backend.fromPartial({ userNetwork: {} }) },
    })),
    "user_network: QEMU's own network",
  ],
  [
    'a device that no specification may have',
    specified(({ devices }) => ({
      devices: { ...devices, root: Device.fromPartial({ backend: 'none', slot: 3, disk: { serial: 'r' } }) },
    })),
    'devices.root.backend',
  ],
  [
    'a layer on a file of another',
    layered({ base: '/etc/shadow' }),
    'layers.1: /etc/shadow: no file of backend',
  ],
  ['a layer that another secret opens', layered({ secret: 'a' }), 'layers.1: '],
  ['a layer below itself', layered({ parent: 1 }), 'layers.1: parent 1: no layer below it'],
  ['a layer without its file', layered({}), 'layers.1: disks/1.qcow2: missing'],
  [
    'a layer whose data are elsewhere',
    { ...layered({}), files: { 'disks/1.qcow2': ELSEWHERE } },
    'layers.1: disks/1.qcow2: has its data elsewhere',
  ],
  ['the context id of the host', { record: () => ({ cid: 2 }) }, 'cid: 2, want 3 or more'],
  ['a well known next port', { record: () => ({ nextPort: 1024 }) }, 'next_port: 1024, want 65536'],
  ['a stream at a well known port', { manifest: { streams: [stream] } }, 'streams: port 1024, want 65536'],
  [
    'another device to be plugged in',
    unplugged({
      ...{ deviceKey: 'lan', device: { backend: 'b', port: 'port', nic: { mac: '52:54:00:00:00:09' } } },
      backend: { tap: { interfaceName: 'x', bridge: 'br0' } },
    }),
    'unplugged: want a vsock device of vhost-device-vsock',
  ],
  ['no machine of its document', document({ saved: '{}' }), 'saved machine: '],
  [
    'a device that no document has',
    machine({ devices: { root: { kind: 'disk', model: 'vfio-pci', properties: {} } } }),
    'saved machine: devices.root.model: "vfio-pci": no document has it as disk',
  ],
  [
    'a device of another kind',
    machine({ devices: { root: { kind: 'passthrough', model: 'virtio-blk', properties: {} } } }),
    'saved machine: devices.root.kind: "passthrough": no document has it',
  ],
  [
    'a property that names a file',
    machine({ devices: { lan: { kind: 'nic', model: 'e1000', properties: { romfile: '/etc/shadow' } } } }),
    'saved machine: devices.lan.properties.romfile: no document gives it to e1000',
  ],
  [
    'an option behind a name',
    machine({
      devices: {
        item: { kind: 'firmware-item', model: 'fw_cfg', properties: { name: 'opt/a,file=/etc/shadow' } },
      },
    }),
    'saved machine: devices.item.properties.name: ',
  ],
  ['a table of the firmware', machine({ smbios: { file: '/etc/shadow' } }), 'saved machine: smbios.file: '],
]

describe('what is replaced of a saved machine', () => {
  it.each([
    ['root', 'a device, which stays as the guest knows it, want its backend root-file'],
    ['other', 'no such backend, only backends can be replaced'],
  ])('is one of its backends, which %s is not', async (key, text) => {
    const wing = new SuspendedWing()
    const instances = await wing.daemon()
    await wing.makeWithTap(instances)
    const request = { key: 'web', name: 'one', withoutAgent: true }
    await instances.suspend(SuspendInstanceRequest.fromPartial(request), ADMIN)
    const saved = { name: 'one', replaceComponents: { [key]: file(join(wing.folder, 'disk-1M')) } }
    const resumed = EnsureInstanceRequest.fromPartial({ properties: { key: 'web' }, saved })
    await expect(instances.ensure(resumed, ADMIN)).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
      message: `saved.replace_components.${key}: ${text}`,
    })
    expect(instances.list(ADMIN)).toEqual([])
  })
})

describe('a folder that was made by hand, with digests that fit', () => {
  it.each(CASES)('is refused for %s', async (_, change, text) => {
    const wing = new SuspendedWing()
    const instances = await wing.daemon()
    await wing.makeWithTap(instances)
    const request = { key: 'web', name: 'one', withoutAgent: true }
    const { folder } = await instances.suspend(SuspendInstanceRequest.fromPartial(request), ADMIN)
    await rewrite(folder, change)
    const resumed = { properties: { key: 'web' }, saved: { name: 'one' } }
    await expect(instances.ensure(EnsureInstanceRequest.fromPartial(resumed), ADMIN)).rejects.toThrow(text)
    expect([...wing.holders.processes, ...instances.list(ADMIN)]).toEqual([])
  })
})
