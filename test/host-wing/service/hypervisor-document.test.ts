import { describe, expect, it } from 'vitest'
import { VMSpec } from '../../../src/gen/vm.ts'
import { parseDocument } from '../../../src/host/machine/document/document.ts'
import { expand } from '../../../src/host/machine/expand.ts'
import { documentFor } from '../../../src/host/service/hypervisor/hypervisor-document.ts'
import { metadataOf, rootFileOf } from '../../../src/host/service/hypervisor/hypervisor-machine.ts'

const disk = (file: string, own = {}) => ({ source: { file }, target: { bus: 'virtio' }, ...own })
const ROOT = { storage: [{ name: 'root' }], memory: 64 }
const DOMAIN = { devices: { disks: [disk('/disks/root')] } }
const TAP = { type: 'ethernet', target: { dev: 'tap7' } }

function made(spec: object, vm: Partial<VMSpec> = {}) {
  const whole = VMSpec.fromPartial({ name: 'web', namespace: 'shop', ...vm })
  return documentFor(JSON.stringify({ kind: 'VM', spec }), whole, metadataOf(whole, []))
}

describe('the document of a hypervisor', () => {
  it('gets its identity, its metadata and a card with a tap of VM_SPEC', async () => {
    const address = ['10.1.2.3/32', 'fd00::2']
    const { document, specification } = await made({ features: ROOT, domain: DOMAIN }, { address })
    const machine = expand(parseDocument(document), { isPrivileged: true })
    expect(machine.uuid).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-8/)
    expect(machine.backends['metadata0-backend']?.options).toEqual({
      ...{ hostName: 'web', v4: '10.1.2.3', v4Peer: '169.254.1.1' },
      ...{ v6: 'fd00::2', v6Peer: 'fd6d:6963:726f:766d::1' },
    })
    expect(machine.backends['nic0-backend']).toMatchObject({
      kind: 'tap',
      name: expect.stringMatching(/^vm-/),
    })
    expect(rootFileOf(specification, true)).toBe('/disks/root')
    const again = await made({ features: ROOT, domain: DOMAIN }, { address })
    expect(again.document).toBe(document)
    const other = await made({ features: ROOT, domain: DOMAIN }, { address, namespace: 'other' })
    expect(expand(parseDocument(other.document), { isPrivileged: true }).uuid).not.toBe(machine.uuid)
  })

  it('keeps its own identity and card, also in a template', async () => {
    const smbios = { uuid: '00000000-0000-4000-8000-000000000001' }
    const domain = { devices: { ...DOMAIN.devices, interfaces: [TAP] } }
    const vm = VMSpec.fromPartial({ name: 'web', address: ['10.1.2.3'] })
    const spec = { template: { spec: { features: { ...ROOT, smbios }, domain } } }
    const text = JSON.stringify({ kind: 'VirtualMachineConfig', spec })
    const { document } = await documentFor(text, vm, metadataOf(vm, []))
    const machine = expand(parseDocument(document), { isPrivileged: true })
    expect(machine.uuid).toBe(smbios.uuid)
    expect(Object.values(machine.backends).filter(({ kind }) => kind === 'tap')).toMatchObject([
      { name: 'tap7' },
    ])
  })

  it.each([
    [
      { features: { ...ROOT, metadata: { name: 'x' } }, domain: DOMAIN },
      'spec.features.metadata: VM_SPEC gives it',
    ],
    [{ features: { ...ROOT, memroy: 1 } }, 'spec.features.memroy: unknown field'],
    [
      { features: { memory: 64, storage: [{ name: 'root', source: 'a' }] } },
      'spec.features.storage[0].source: volume "a": not in the catalogue',
    ],
    [
      { features: ROOT, domain: { devices: { disks: [disk('/a'), disk('/b', { bootOrder: 1 })] } } },
      'devices.root.properties.bootindex: want a lower bootOrder than that of disk1',
    ],
    [
      {
        features: ROOT,
        domain: { devices: { ...DOMAIN.devices, interfaces: [{ source: { bridge: 'br0' } }] } },
      },
      'backends.nic0-backend.tap.bridge: not possible with an address',
    ],
    [
      {
        features: ROOT,
        domain: { devices: { ...DOMAIN.devices, interfaces: [{ ...TAP, source: { bridge: 'b' } }] } },
      },
      'want target.dev alone',
    ],
  ])('is refused by its field: %j', async (spec, message) => {
    const refused = made(spec, { address: ['10.1.2.3'] })
    await expect(refused).rejects.toThrow(message)
    await expect(refused).rejects.toThrow(/^--machine: /)
  })

  it('has a root disk', async () => {
    const { specification } = await made({ features: { memory: 64 } })
    expect(() => rootFileOf(specification, false)).toThrow('--machine: devices.root: no disk with a file')
  })
})
