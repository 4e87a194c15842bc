import fc from 'fast-check'
import { NOT_BUILT } from '../../../src/host/machine/features/table.ts'

const odd = fc.oneof(
  fc.constantFrom<unknown>(null, true, '', '/etc/passwd', '..', -1, 2 ** 63, 1.5, [], {}, '__proto__', '\0'),
  fc.jsonValue(),
)
/** A value of a field, now and then any other. */
const mostly = (arbitrary: fc.Arbitrary<unknown>) => fc.oneof({ weight: 40, arbitrary }, odd)
const number = (min: number, max: number) => mostly(fc.integer({ min, max }))
const word = (...words: readonly unknown[]) => mostly(fc.constantFrom(...words))
const name = word('a', 'b', 'root', 'lan')
/** An object with some of these fields. */
const some = (fields: Readonly<Record<string, fc.Arbitrary<unknown>>>) =>
  mostly(fc.record(fields, { requiredKeys: [] }))
const list = (item: fc.Arbitrary<unknown>, maxLength = 4) => mostly(fc.array(item, { maxLength }))
const address = mostly(
  fc.oneof(
    fc.constantFrom('00:05.0', '00:05.1', '01:00.0', '00:1f.0'),
    fc.record({ slot: fc.integer({ min: 0, max: 31 }) }),
  ),
)
/** Mostly no address: the others have their own. */
const rarely = (arbitrary: fc.Arbitrary<unknown>) => fc.option(arbitrary, { nil: undefined, freq: 3 })
const toggle = (fields: Readonly<Record<string, fc.Arbitrary<unknown>>>) =>
  fc.oneof(word(true, false), some(fields))

/** A wish of each feature, mostly one that it takes. */
export const wishes: Readonly<Record<string, fc.Arbitrary<unknown>>> = {
  machine: word('pc', 'q35', 'microvm', 'pc-q35-7.2', 'pc-i440fx-7.2'),
  smbios: some({ manufacturer: name, serial: name, uuid: word('11111111-FEED-DEAD-BEEF-111111111111') }),
  memory: fc.oneof(
    number(1, 5000),
    some({ size: number(64, 4096), maximum: number(4096, 9999), slots: number(1, 16) }),
  ),
  cpu: fc.oneof(
    number(1, 16),
    some({
      model: word('Westmere-v1', 'host', 'max'),
      present: number(1, 2),
      topology: some({ sockets: number(1, 4), cores: number(1, 4) }),
    }),
  ),
  numa: fc.oneof(
    word('match-host'),
    some({ cells: list(some({ cpus: word('0', [0]), memory: word(512) }), 2) }),
  ),
  firmware: fc.oneof(
    word('bios', 'uefi'),
    some({ type: word('uefi'), kernel: name, commandLine: word('a=b') }),
  ),
  generationId: toggle({}),
  iothreads: number(0, 4),
  controllers: list(
    some({
      type: word('scsi', 'usb', 'virtio-serial', 'root-port', 'pci-bridge', 'ide', 'sata'),
      address: rarely(address),
    }),
  ),
  system: fc.oneof(
    word('linux', 'windows'),
    some({ type: word('windows', 'linux'), version: word(10, '2019'), guestAgent: word(true) }),
  ),
  storage: list(
    some({
      type: word('disk', 'cdrom'),
      interface: rarely(word('virtio-blk', 'virtio-scsi', 'ide', 'sata', 'nvme')),
      source: name,
      serial: rarely(name),
      bootOrder: rarely(number(1, 9)),
      unit: rarely(number(0, 5)),
      address: rarely(rarely(address)),
    }),
    12,
  ),
  network: list(
    fc.record({
      source: name,
      model: rarely(word('virtio', 'e1000')),
      mac: rarely(word('52:54:00:00:00:01')),
      address: rarely(rarely(address)),
    }),
    40,
  ),
  graphics: toggle({
    type: word('spice', 'vnc'),
    video: word('qxl', 'vga', 'virtio'),
    heads: number(1, 4),
    password: name,
  }),
  console: word('serial', 'virtio', 'none'),
  vsock: toggle({ cid: number(3, 99) }),
  metadata: some({ name, v4: some({ ip: word('10.0.0.2/24') }) }),
  share: list(
    fc.record({ source: name, tag: word('a', 'b', 'c', 'd'), type: rarely(word('virtio-fs', '9p')) }),
    3,
  ),
  rng: toggle({ rate: some({ bytes: number(1, 999) }) }),
  balloon: toggle({ deflateOnOom: word(true), address: rarely(address) }),
  input: list(
    fc.record({ type: word('mouse', 'tablet', 'keyboard'), bus: rarely(word('usb', 'virtio', 'ps2')) }),
  ),
  watchdog: toggle({ model: word('i6300esb', 'ib700'), action: word('reset', 'none') }),
  channel: list(fc.record({ name: word('org.example.0', 'org.example.1', 'org.qemu.guest_agent.0') }), 2),
}
const unknownWishes = Object.fromEntries(
  [...Object.keys(NOT_BUILT), 'memroy'].map((key) => [key, fc.constant(true)]),
)
const features = fc.oneof(
  { weight: 60, arbitrary: fc.record(wishes, { requiredKeys: [] }) },
  // Few features at a time are more often right together.
  {
    weight: 60,
    arbitrary: fc
      .subarray(Object.keys(wishes), { maxLength: 5 })
      .chain((keys) => fc.record(Object.fromEntries(keys.map((key) => [key, wishes[key] ?? odd])))),
  },
  fc.record(unknownWishes, { requiredKeys: [] }),
  odd,
)
/** Documents, of which about every fourth makes a machine. */
export const documents = fc.oneof(
  {
    weight: 50,
    arbitrary: features.map((own) => ({ kind: 'VM', metadata: { name: 'web' }, spec: { features: own } })),
  },
  fc.record({
    kind: word('VM', 'VirtualMachineConfig', 'Machine'),
    spec: some({ template: some({ spec: features }) }),
  }),
  odd,
)
