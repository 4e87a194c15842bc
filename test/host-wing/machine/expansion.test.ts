import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { DEFAULTS } from '../../../src/host/machine/defaults.ts'
import { differences } from '../../../src/host/machine/diff.ts'
import { readDocument, readMachine } from '../../../src/host/machine/document/document.ts'
import { parseYaml } from '../../../src/host/machine/document/parse-yaml.ts'
import { expand } from '../../../src/host/machine/expand.ts'
import { FEATURES } from '../../../src/host/machine/features/table.ts'
import { expanded } from '../../support/host-wing/expansion.ts'
import { OTHER_DEFAULTS } from '../../support/host-wing/other-defaults.ts'

const FIXTURES = join(import.meta.dirname, '../../fixtures/machines')
const fixture = (name: string) => parseYaml(readFileSync(join(FIXTURES, name), 'utf8'))

describe('an expansion', () => {
  const document = readDocument(fixture('kubevirt-vm.yaml'))

  it('of the same document with the same facts is the same', () => {
    const facts = { acceleration: 'kvm', numaNodes: [[0, 1]] } as const
    const [one, other] = [1, 2].map(() => expand(document, { facts, isPrivileged: true }))
    expect(JSON.stringify(other)).toBe(JSON.stringify(one))
  })

  it.each(['kubevirt-vm', 'features'])('of %s.yaml is the recorded one', (name) => {
    const machine = expand(readDocument(fixture(`${name}.yaml`)), { isPrivileged: true })
    expect(differences(readMachine(fixture(`${name}.machine.yaml`)), machine)).toEqual([])
  })

  it('has addresses and serials of its own for each identity', () => {
    const wishes = { storage: [{ source: 'a' }], network: [{ source: 'lan' }] }
    const uuid = '5f0f3c4e-8a3c-4c59-9a54-0d8b0a0f2e11'
    const paths = differences(expanded(wishes), expanded(wishes, { facts: { uuid } })).map(({ path }) => path)
    expect(paths).toEqual(['devices.disk0.properties.serial', 'devices.nic0.properties.mac', 'uuid'])
  })

  it("of the page's own document is a machine, also of a tenant", () => {
    const page = readFileSync(join(FIXTURES, '../../../docs/machine.md'), 'utf8')
    const [, example = ''] = /^```yaml\n(.*?)^```$/ms.exec(page) ?? []
    const { devices, name } = expand(readDocument(parseYaml(example)), { isPrivileged: false })
    expect(name).toBe('web')
    expect(Object.keys(devices)).toEqual(
      expect.arrayContaining(['disk0', 'nic0', 'rng0', 'console0', 'balloon0']),
    )
  })

  it('refuses the part `domain` of a tenant', () => {
    expect(() => expand(document, { isPrivileged: false })).toThrow(
      expect.objectContaining({
        code: 'PERMISSION_DENIED',
        message: 'spec.domain: only for the administrator',
      }),
    )
  })

  it('sees a test for each feature of the table', () => {
    const files = ['board', 'devices', 'storage'].map((name) =>
      readFileSync(join(import.meta.dirname, `features/${name}.test.ts`), 'utf8'),
    )
    const tested = [...files.join('\n').matchAll(/^describe\('([\w-]+)'/gm)].map(([, name]) => name)
    expect(tested.sort()).toEqual(FEATURES.map(({ name }) => name).sort())
  })
})

describe('differences', () => {
  it('name each field by its path', () => {
    const before = expanded({ memory: 512, storage: [{ source: 'a' }] })
    const after = expanded({ memory: 1024, storage: [{ source: 'b' }, { source: 'c' }] })
    const found = differences(before, after)
    expect(found).toContainEqual({ path: 'memory.sizeMib', before: 512, after: 1024 })
    expect(found).toContainEqual({ path: 'backends.disk0-backend.name', before: 'a', after: 'b' })
    expect(found).toContainEqual({ path: 'devices.disk1', before: undefined, after: after.devices.disk1 })
    expect(differences(before, before)).toEqual([])
  })

  it('of lists are those of their items', () => {
    const [before, after] = [{ numa: 'match-host' }, {}].map((wishes) =>
      expanded({ ...wishes, machine: 'microvm' }),
    )
    if (before === undefined || after === undefined) throw new Error('two machines are needed')
    expect(differences(before, { ...before, notes: ['a'] }).map(({ path }) => path)).toEqual(['notes[0]'])
    expect(differences(before, after).map(({ path }) => path)).toEqual(['numa.matchHost'])
  })
})

describe('the part domain', () => {
  it('goes before the features, field by field and item by item', () => {
    const domain = {
      memory: { size: 2048 },
      devices: {
        disks: [{ target: { bus: 'virtio' }, source: { file: '/srv/a.img' }, driver: { cache: 'none' } }],
      },
    }
    const features = {
      memory: { size: 1024, slots: 2 },
      storage: [{ source: 'a', bootOrder: 1 }, { source: 'b' }],
    }
    const { backends, devices, memory } = expanded(features, { domain })
    expect(memory).toMatchObject({ sizeMib: 2048, slots: 2 })
    expect(devices.disk0?.properties.bootindex).toBe(1)
    expect(backends['disk0-backend']).toEqual({
      kind: 'file',
      path: '/srv/a.img',
      options: { cache: 'none' },
    })
    expect(backends['disk1-backend']).toMatchObject({ kind: 'volume', name: 'b' })
  })

  const refusal = (domain: unknown, features = {}) => {
    try {
      expanded(features, { domain })
    } catch (error) {
      return String(error).replace('AgentError: ', '')
    }
    return 'taken'
  }

  it.each([
    [
      { os: { type: { machine: 'pc-i440fx-6.0' } } },
      'os.type.machine: "pc-i440fx-6.0": unknown machine, did you mean "pc-i440fx-7.2"?',
    ],
    [
      { devices: { graphics: [{ type: 'spice', passwd: 'secret' }] } },
      'devices.graphics[0].passwd: "secret", want ***** (a secret is in no document)',
    ],
    [
      { devices: { graphics: [{ type: 'vnc', port: 5900 }] } },
      'devices.graphics[0].port: 5900, want a whole number, -1 to -1',
    ],
    [
      {
        uuid: '11111111-feed-dead-beef-111111111111',
        sysinfo: { uuid: '21111111-feed-dead-beef-111111111111' },
      },
      'sysinfo.uuid: 21111111-feed-dead-beef-111111111111: want that of spec.domain.uuid',
    ],
    [{ memory: { size: 1 }, maxmemory: { size: 1025 } }, 'maxmemory.size: 1025 KiB: want whole MiB'],
    [{ clock: [{ timer: 'rtc', present: true }] }, 'clock[0]: rtc: want a tickPolicy alone'],
    [
      {
        clock: [
          { timer: 'hpet', present: true },
          { timer: 'hpet', present: true },
        ],
      },
      'clock[1].timer: hpet: given twice',
    ],
    [
      { devices: { disks: [{ device: 'cdrom', target: { bus: 'ide', dev: 'sda' } }] } },
      'devices.disks[0].target.dev: sda: want hd for bus ide',
    ],
    [
      { devices: { interfaces: [{ type: 'network', source: { bridge: 'br0' } }] } },
      'devices.interfaces[0].source: want network alone',
    ],
    [{ devices: { video: [{ type: 'qxl' }] } }, 'devices.video: wants graphics'],
    [
      { devices: { channels: [{ type: 'spicevmc', target: { name: 'a' } }] } },
      'devices.channels[0].type: spicevmc: not that of a',
    ],
    [
      { vcpu: { count: 5 }, cpu: { topology: { sockets: 1, cores: 2, threads: 2 } } },
      'cpu.topology: 1 × 2 × 2 is 4, want 5 CPUs',
    ],
  ])('with %j is refused by its path', (domain, reason) => {
    expect(refusal(domain)).toContain(`spec.domain.${reason}`)
  })

  it('names the same device as the feature of its place', () => {
    const domain = {
      devices: { disks: [{ device: 'disk', target: { bus: 'virtio' }, source: { file: '/a' } }] },
    }
    expect(refusal(domain, { storage: [{ type: 'cdrom' }] })).toBe(
      'spec.features.storage[0].type: cdrom: domain has disk in its place',
    )
  })

  it('names disks as Linux does', () => {
    const disks = ['sda', 'sdz', 'sdaa'].map((dev) => ({
      target: { bus: 'scsi', dev },
      source: { file: '/a' },
    }))
    const { devices } = expanded({}, { domain: { devices: { disks } } })
    expect(['disk0', 'disk1', 'disk2'].map((key) => devices[key]?.address)).toMatchObject([
      ...[{ target: 0 }, { target: 25 }, { target: 26 }],
    ])
  })
})

describe('the defaults of an expansion', () => {
  const disk = { storage: [{ source: 'a' }] }
  // Between them they leave each default open.
  const documents = [
    {
      ...disk,
      network: [{ source: 'lan' }],
      rng: { rate: { bytes: 1 } },
      share: [{ source: 'a', tag: 'a' }],
    },
    { system: 'windows', watchdog: true, graphics: true, balloon: false },
    { ...disk, graphics: { type: 'vnc' }, rng: true },
    { rng: true, watchdog: true },
    { machine: 'microvm' },
    { memory: 200_000 },
  ]
  const machines = (defaults = DEFAULTS) =>
    documents.map((features) => JSON.stringify(expanded(features, { defaults })))
  const usual = machines()

  it.each(leaves(DEFAULTS))('have %s, which decides of the hardware', (path) => {
    expect(machines(withLeaf(DEFAULTS, OTHER_DEFAULTS, path))).not.toEqual(usual)
  })
})

type Tree = Readonly<Record<string, unknown>>

function leaves(tree: object, at = ''): readonly string[] {
  return Object.entries(tree).flatMap(([name, value]) =>
    typeof value === 'object' && value !== null && !Array.isArray(value)
      ? leaves(value, `${at}${name}.`)
      : [`${at}${name}`],
  )
}

/** The first tree with one leaf of the other. */
function withLeaf<T extends object>(tree: T, other: T, path: string): T {
  const [name = '', ...rest] = path.split('.')
  const [own, others] = [tree, other].map((each) => (each as Tree)[name])
  const value = rest.length === 0 ? others : withLeaf(own as object, others as object, rest.join('.'))
  return { ...tree, [name]: value }
}
