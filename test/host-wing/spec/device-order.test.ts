import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { qemuArguments } from '../../../src/host/qemu/qemu-arguments.ts'
import type { VmSpec } from '../../../src/host/spec/spec.ts'
import { nodeNames, qemuId, type SpecKey, specKey } from '../../../src/host/spec/spec-key.ts'

const key = specKey

/** Machine `microvm` has no PCI addresses, so the guest's names of its devices depend on their order. */
const spec: VmSpec = {
  board: { machine: 'microvm', memoryMib: 128, cpus: 1, kernel: '/k', initrd: undefined, commandLine: '' },
  devices: {
    [key('data')]: { kind: 'disk', slot: 7, serial: 'data', backend: key('data-file') },
    [key('root')]: { kind: 'disk', slot: 2, serial: 'root', backend: key('root-file') },
    [key('folders')]: { kind: 'share', slot: 4, tag: 'folders', backend: key('daemon') },
    [key('console')]: { kind: 'serial', backend: key('output') },
    [key('first')]: { kind: 'fw-cfg', name: 'opt/a', backend: key('first-content') },
    [key('second')]: { kind: 'fw-cfg', name: 'opt/b', backend: key('second-content') },
  },
  backends: {
    [key('data-file')]: { kind: 'file', path: '/d', access: 'read-write' },
    [key('root-file')]: { kind: 'file', path: '/r', access: 'scratch' },
    [key('daemon')]: { kind: 'vhost-user', socket: '/s' },
    [key('output')]: { kind: 'console' },
    [key('first-content')]: { kind: 'content', path: '/1' },
    [key('second-content')]: { kind: 'content', path: '/2' },
  },
}

function renamed(old: VmSpec, to: ReadonlyMap<string, string>): VmSpec {
  const name = (text: string) => key(to.get(text) ?? '')
  const devices = Object.entries(old.devices).map(
    ([own, device]) =>
      [name(own), 'backend' in device ? { ...device, backend: name(device.backend) } : device] as const,
  )
  const backends = Object.entries(old.backends).map(([own, backend]) => [name(own), backend] as const)
  // Maps of messages have no order.
  return { ...old, devices: Object.fromEntries(devices.reverse()), backends: Object.fromEntries(backends) }
}

/** The arguments with each id replaced by the key in `spec` that it stands for. */
function argumentsWithoutIds(vm: VmSpec, from: ReadonlyMap<string, string>): readonly string[] {
  const ids = new Map(
    [...from].flatMap(([now, old]) => {
      const { format, file } = nodeNames(key(now))
      return [file, format, qemuId(key(now))].map((id) => [id, `<${old}>`] as const)
    }),
  )
  const words = qemuArguments(vm, { acceleration: 'tcg', qmp: { fd: 3 } })
  return words.map((word) => word.replace(/[\w.-]+/g, (part) => ids.get(part) ?? part))
}

const texts = fc.oneof(
  // A JavaScript object lists such keys first.
  fc.nat().map(String),
  fc.uuid(),
  fc.stringMatching(/^[\w .]{1,60}$/).filter((text) => text !== '__proto__'),
  fc.constantFrom('constructor', 'toString', 'ä'),
)

describe('devicesInOrder', () => {
  it('does not depend on keys: other keys change nothing in the arguments but ids', () => {
    const old = [...Object.keys(spec.devices), ...Object.keys(spec.backends)]
    const same = new Map(old.map((name) => [name, name]))
    fc.assert(
      fc.property(
        fc.uniqueArray(texts, { minLength: old.length, maxLength: old.length, selector: (text) => text }),
        (fresh) => {
          const to = new Map(old.map((name, index) => [name, fresh[index] ?? '']))
          const from = new Map<string, string>([...to].map(([a, b]): [SpecKey, string] => [key(b), a]))
          expect(argumentsWithoutIds(renamed(spec, to), from)).toEqual(argumentsWithoutIds(spec, same))
        },
      ),
    )
  })
})
