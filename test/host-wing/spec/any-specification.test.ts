import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { AgentError } from '../../../src/base/errors.ts'
import { Specification } from '../../../src/gen/microvm/instance/v1/instance.ts'
import { qemuArguments } from '../../../src/host/qemu/qemu-arguments.ts'
import { specFromProto } from '../../../src/host/spec/from-proto.ts'
import { NETWORK_FILTERS } from '../../../src/host/spec/spec.ts'
import { specToProto } from '../../../src/host/spec/to-proto.ts'

const text = fc.oneof(
  { weight: 8, arbitrary: fc.constantFrom('a', 'b', '/a', '/a,b', 'opt/a', '52:54:00:00:00:02') },
  fc.constantFrom('', '..', '/../', 'toString', '0', 'ä', '\n', '__proto__'),
  fc.string({ unit: 'binary' }),
)
const path = fc.oneof({ weight: 9, arbitrary: fc.constant('/a') }, text)
const number = fc.oneof(
  { weight: 8, arbitrary: fc.integer({ min: 0, max: 31 }) },
  fc.integer({ min: 0, max: 2 ** 32 - 1 }),
)
const size = fc.oneof(
  { weight: 8, arbitrary: fc.constantFrom(2n << 20n, 64n) },
  fc.bigInt({ min: 0n, max: 2n ** 64n - 1n }),
)
const empty = fc.constant({})

/** One kind, now and then another one as well. */
function kindOf(kinds: Readonly<Record<string, fc.Arbitrary<unknown>>>) {
  const one = fc.oneof(...Object.entries(kinds).map(([name, value]) => fc.record({ [name]: value })))
  return fc.oneof(
    { weight: 20, arbitrary: one },
    fc.tuple(one, one).map(([a, b]) => ({ ...a, ...b })),
  )
}

const devices = {
  disk: fc.record({ serial: text, nvme: fc.boolean() }),
  persistentMemory: fc.record({ sizeBytes: size }),
  nic: fc.record({
    mac: fc.constant('52:54:00:00:00:02'),
    replaceable: fc.boolean(),
    filters: fc.subarray([...NETWORK_FILTERS]),
    addresses: fc.array(fc.oneof({ weight: 8, arbitrary: fc.constantFrom('10.0.0.2', 'fd00::2') }, text), {
      maxLength: 3,
    }),
  }),
  vsock: fc.record({ cid: number }),
  serial: empty,
  virtioConsole: empty,
  firmwareItem: fc.record({ name: text }),
  rootPort: fc.record({ function: number }),
  pciBridge: empty,
  share: fc.record({ tag: text }),
}
const backends = {
  file: fc.record({ path, access: fc.constantFrom(0, 1, 2, 3, 3) }),
  passt: empty,
  tap: fc.record({ interfaceName: text, bridge: text }),
  vhostVsock: empty,
  vsockDaemon: empty,
  vhostUser: fc.record({ socket: path }),
  virtiofsd: fc.record({ path }),
  console: empty,
  content: fc.record({ path }),
  folder: fc.record({ path }),
  userNetwork: fc.record({ forwards: fc.array(fc.record({ hostPort: number, guestPort: number })) }),
}
const { file, passt, tap, vhostVsock, vsockDaemon, virtiofsd, console, content, folder } = backends
const fitting = fc.oneof(
  fc.tuple(fc.record({ disk: devices.disk }), fc.record({ file })),
  fc.tuple(fc.record({ nic: devices.nic }), kindOf({ passt, tap })),
  fc.tuple(fc.record({ vsock: devices.vsock }), kindOf({ vhostVsock, vsockDaemon })),
  fc.tuple(fc.record({ share: devices.share }), kindOf({ virtiofsd, folder })),
  fc.tuple(fc.record({ virtioConsole: empty }), fc.record({ console })),
  fc.tuple(fc.record({ firmwareItem: devices.firmwareItem }), fc.record({ content })),
)
/** A device with the backend that it names, so that many specifications are right. */
const component = fc.tuple(
  fc.record({ slot: number, port: fc.option(text, { freq: 9, nil: '' }) }),
  fc.oneof({ weight: 9, arbitrary: fitting }, fc.tuple(kindOf(devices), kindOf(backends))),
)
const good = { machine: 'pc-q35-7.2', memoryMib: 64n, cpus: 1, kernel: '/a', commandLine: '' }
const board = fc.oneof(
  { weight: 4, arbitrary: fc.constantFrom(good, { ...good, machine: 'microvm' }) },
  fc.record({
    machine: fc.constantFrom('pc-i440fx-7.2', 'pc', ''),
    memoryMib: size,
    cpus: fc.integer({ min: 0, max: 300 }),
    kernel: path,
    commandLine: text,
  }),
)

const message = fc.tuple(board, fc.dictionary(text, component, { maxKeys: 4 })).map(([own, components]) => {
  const rows = Object.entries(components).map(([key, [place, [kind, provided]]]) => {
    const hasBackend = !('rootPort' in kind || 'pciBridge' in kind)
    const backend = hasBackend ? `${key}-backend` : ''
    return { device: [key, { backend, ...place, ...kind }] as const, backend, provided }
  })
  const parts = {
    board: own,
    devices: Object.fromEntries(rows.map(({ device }) => device)),
    backends: Object.fromEntries(
      rows.filter(({ backend }) => backend).map((row) => [row.backend, row.provided]),
    ),
  }
  return Specification.decode(Specification.encode(Specification.fromPartial(parts)).finish())
})

describe('any specification', () => {
  it('is refused by a path, or has arguments for QEMU and is the same when written again', () => {
    let accepted = 0
    fc.assert(
      fc.property(message, (received) => {
        let spec: ReturnType<typeof specFromProto>
        try {
          spec = specFromProto(received)
        } catch (error) {
          expect(error).toBeInstanceOf(AgentError)
          expect(error).toMatchObject({ code: 'INVALID_ARGUMENT' })
          expect(String(error)).toMatch(/^AgentError: (board|devices|backends|specification).*: /s)
          return
        }
        accepted += 1
        expect(specToProto(spec)).toEqual(received)
        const sockets = new Map(Object.keys(spec.backends).map((key) => [key, '/s']))
        const host = { acceleration: 'tcg', qmp: { fd: 3 }, sockets: sockets as never, cid: 3 } as const
        const words = qemuArguments(spec, host)
        expect(words.join(' ')).not.toMatch(/[\0\n]|undefined|\[object/)
      }),
      { numRuns: 2000 },
    )
    expect(accepted).toBeGreaterThan(100)
  })
})
