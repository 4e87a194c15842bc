import { Ajv } from 'ajv'
import { describe, expect, it } from 'vitest'
import { documentSchema, readDocument, readMachine } from '../../../src/host/machine/document/document.ts'
import { parseYaml } from '../../../src/host/machine/document/parse-yaml.ts'
import { expanded } from '../../support/host-wing/expansion.ts'

const refusalOf = (work: () => unknown) => {
  try {
    work()
  } catch (error) {
    return String(error).replace('AgentError: ', '')
  }
  return 'taken'
}

describe('a document', () => {
  const read = (text: string) => readDocument(parseYaml(text))

  it('is YAML or JSON of kind VM', () => {
    const json = '{"kind": "VM", "metadata": {"name": "web"}, "spec": {"features": {"memory": 64}}}'
    const yaml = 'kind: VM\nmetadata:\n  name: web\nspec:\n  features:\n    memory: 64\n'
    expect(read(json)).toEqual({
      ...{ name: 'web', labels: {}, at: 'spec' },
      features: { memory: { size: 64 } },
      stability: 'fixed',
      domain: undefined,
    })
    expect(read(yaml)).toEqual(read(json))
  })

  it('may be a VirtualMachineConfig, whose metadata may be empty', () => {
    const text =
      'kind: VirtualMachineConfig\nspec:\n  template:\n    metadata:\n    spec:\n      features: {memory: 64}\n'
    expect(read(text)).toMatchObject({ at: 'spec.template.spec', features: { memory: { size: 64 } } })
    const error = refusalOf(() => read(text.replace('64', '0')))
    expect(error).toContain('spec.template.spec.features.memory: 0, want MiB')
  })

  it.each(['microvm/v1', 'kubevirt.io/v1alpha1'])('may be of apiVersion %s', (apiVersion) => {
    expect(refusalOf(() => readDocument({ apiVersion, kind: 'VM', spec: {} }))).toBe('taken')
  })

  it.each([
    [[], 'document: want an object with apiVersion, kind, metadata, spec'],
    [{}, 'kind: missing, want VM or VirtualMachineConfig'],
    [{ kind: 'Vm' }, 'kind: "Vm", did you mean "VM"?'],
    [{ kind: 'VM', apiVersion: 'v2' }, 'apiVersion: "v2", want microvm/v1, kubevirt.io/v1alpha1'],
    [{ kind: 'VM' }, 'spec: missing'],
    [{ kind: 'VM', spec: { feature: {} } }, 'spec.feature: unknown field, did you mean "features"?'],
    [
      { kind: 'VM', spec: { features: { memroy: 1 } } },
      'spec.features.memroy: unknown field, did you mean "memory"?',
    ],
    [{ kind: 'VM', spec: { features: { tpm: true } } }, 'spec.features.tpm: not built yet: a TPM'],
    [
      { kind: 'VM', spec: { features: { hostDevices: [] } } },
      'spec.features.hostDevices: not built yet: devices of the host',
    ],
    [{ kind: 'VM', spec: { features: { rng: null } } }, 'spec.features.rng: empty, want true or false'],
    [{ kind: 'VM', spec: { features: { 'a b': 1 } } }, 'spec.features["a b"]: unknown field'],
    [
      { kind: 'VM', metadata: { name: 12 }, spec: {} },
      'metadata.name: 12, want 1 to 64 printable characters',
    ],
  ])('like %j is refused by the path of the field', (value, reason) => {
    expect(refusalOf(() => readDocument(value))).toContain(reason)
  })

  it.each([
    ['a key twice', 'a: 1\na: 2\n', 'key "a" twice at line 2, column 1'],
    ['a key of JSON twice', '{"a": 1, "a": 2}', 'key "a" twice at line 1, column 10'],
    ['an open list', 'a: [1\n', 'at line 2'],
    ['an unknown alias', 'a: *b\n', 'Unresolved alias'],
    ['a tag of a program', 'a: !!js/function x\n', 'Unresolved tag'],
    ['two documents', '--- 1\n--- 2\n', 'multiple documents'],
    ['many levels', '['.repeat(2 ** 19), 'nested deeper than 64'],
    ['many levels of a list', '- '.repeat(2 ** 18), 'nested deeper than 64'],
    ['a map for a key', '? {a: 1}\n: 2\n', 'a key of a map is no text'],
    ['too much text', 'x'.repeat(2 ** 19 + 1), '524289 bytes, want at most 524288'],
  ])('with %s is refused', (_, text, reason) => {
    const error = refusalOf(() => parseYaml(text))
    expect(error).toMatch(/^document: /)
    expect(error).toContain(reason)
  })

  it('cannot grow by aliases', () => {
    const rows = Array.from(
      { length: 9 },
      (_, n) => `${'bcdefghij'[n]}: &${'bcdefghij'[n]} [${Array(9).fill(`*${'abcdefghi'[n]}`)}]`,
    )
    expect(refusalOf(() => parseYaml(['a: &a [x]', ...rows].join('\n')))).toBe(
      'document: aliases repeat more than 100 values',
    )
  })

  it('of many keys is read in time', () => {
    const keys = Array.from({ length: 50_000 }, (_, index) => `k${index}: 1`)
    expect(Object.keys(parseYaml(keys.join('\n')) ?? {})).toHaveLength(50_000)
  })

  it('leaves nothing to JavaScript: __proto__ is a field like others', () => {
    expect(refusalOf(() => read('{"kind": "VM", "spec": {"__proto__": {}}}'))).toContain(
      'spec.__proto__: unknown field',
    )
  })
})

describe('the JSON Schema', () => {
  const isValid = new Ajv({ strict: false }).compile(documentSchema)
  const vm = (features: unknown) => ({ kind: 'VM', spec: { features } })

  it('takes the short forms and the long ones', () => {
    const short = {
      memory: 1,
      cpu: 2,
      graphics: true,
      rng: true,
      numa: 'match-host',
      machine: 'pc',
      system: 'linux',
    }
    const long = {
      memory: { size: 1 },
      storage: [{ source: 'a', address: { slot: 3 } }],
      rng: { rate: { bytes: 1 } },
    }
    expect([isValid(vm(short)), isValid(vm(long))]).toEqual([true, true])
  })

  it.each([
    { memory: '1' },
    { memroy: 1 },
    { tpm: true },
    { storage: [{ source: '/a' }] },
    { rng: { path: '/a' } },
  ])('refuses %j', (features) => {
    expect(isValid(vm(features))).toBe(false)
  })
})

describe('a machine that was written down', () => {
  const machine = expanded({ machine: 'pc', storage: [{ source: 'a' }], network: [{ source: 'lan' }] })

  it('is read as it was', () => {
    expect(readMachine(JSON.parse(JSON.stringify(machine)))).toEqual(machine)
  })

  it.each([
    [{ apiVersion: 'microvm/v2' }, 'apiVersion: "microvm/v2", did you mean "microvm/v1"?'],
    [
      { board: { ...machine.board, machine: 'pc-q35-8.0' } },
      'board.machine: "pc-q35-8.0", did you mean "pc-q35-7.2"?',
    ],
    [{ later: 1 }, 'later: unknown field'],
    [{ backends: {} }, 'devices.disk0.backend: "disk0-backend": no such backend'],
    [
      { backends: { ...machine.backends, x: { kind: 'volume', options: {} } } },
      'backends.x: no device uses it',
    ],
    [
      {
        devices: {
          ...machine.devices,
          nic0: { ...machine.devices.nic0, address: machine.devices.disk0?.address },
        },
      },
      'devices.nic0.address: PCI 0:4.0: already that of devices.disk0',
    ],
    [
      {
        devices: {
          ...machine.devices,
          x: {
            kind: 'x',
            model: 'x',
            properties: {},
            address: { type: 'port', controller: 'disk0', port: 1 },
          },
        },
      },
      'devices.x.address.controller: "disk0": no such controller',
    ],
  ])('with %j is refused by the path of the field', (change, reason) => {
    expect(refusalOf(() => readMachine({ ...machine, ...change }))).toContain(reason)
  })
})
