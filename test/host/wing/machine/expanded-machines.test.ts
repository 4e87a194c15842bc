import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { AgentError } from '../../../../src/base/errors.ts'
import { readDocument } from '../../../../src/host/machine/document/document.ts'
import { parseYaml } from '../../../../src/host/machine/document/parse-yaml.ts'
import { expand } from '../../../../src/host/machine/expand.ts'
import type { Machine } from '../../../../src/host/machine/machine.ts'
import { askedQemu, checkHardware } from '../../../../src/host/qemu/capabilities.ts'
import { qemuName } from '../../../../src/host/qemu/machine/addresses.ts'
import { machineArguments } from '../../../../src/host/qemu/machine/machine-arguments.ts'
import { documents } from '../../../support/host-wing/any-document.ts'
import { expanded } from '../../../support/host-wing/expansion.ts'
import { temporaryFolder } from '../../../support/temporary-folder.ts'
import { nullBackends } from '../../../support/wing/fakes/null-backends.ts'

const MACHINES = 50
const SAMPLE_MS = 300_000
const QEMU_MS = 30_000

/** What a paused QEMU says of its hardware. */
interface Hardware {
  /** By the id of a device: its type, its bus and its address on PCI. */
  readonly devices: ReadonlyMap<
    string,
    { readonly type: string; readonly bus: string; readonly text: string }
  >
  /** All of the tree of devices. */
  readonly tree: string
  /** Ids of all devices that have one, also of those on no bus. */
  readonly ids: ReadonlySet<string>
  readonly cpus: number
  readonly memoryBytes: number
}

/** Starts QEMU with null backends, asks it, and ends it. Throws with QEMU's own words. */
function hardwareOf(machine: Machine): Hardware {
  const provide = nullBackends(temporaryFolder())
  const words = machineArguments(machine, { acceleration: 'tcg', nowMs: 0, provide })
  const ask = (execute: string, own = {}) => `${JSON.stringify({ execute, arguments: own })}\n`
  const input = [
    ask('qmp_capabilities'),
    ask('human-monitor-command', { 'command-line': 'info qtree' }),
    ...[ask('query-cpus-fast'), ask('query-memory-size-summary')],
    ...[ask('qom-list', { path: '/machine/peripheral' }), ask('quit')],
  ].join('')
  const { stderr, stdout } = spawnSync('qemu-system-x86_64', [...words, '-qmp', 'stdio'], {
    input,
    timeout: QEMU_MS,
    encoding: 'utf8',
  })
  const answers = stdout
    .split('\n')
    .flatMap((line): readonly { readonly return?: unknown }[] => (line === '' ? [] : [JSON.parse(line)]))
  const [, tree, cpus, memory, peripherals] = answers.flatMap((answer) =>
    answer.return === undefined ? [] : [answer.return],
  )
  if (typeof tree !== 'string' || !Array.isArray(cpus)) throw new Error(`QEMU: ${stderr}`)
  const sizes = memory as { readonly 'base-memory': number }
  const ids = new Set((peripherals as readonly { readonly name: string }[]).map(({ name }) => name))
  return { devices: devicesOf(tree), tree, ids, cpus: cpus.length, memoryBytes: sizes['base-memory'] }
}

function devicesOf(tree: string): Hardware['devices'] {
  const devices = new Map<string, { type: string; bus: string; text: string }>()
  const buses: { readonly indent: number; readonly name: string }[] = []
  let own: { type: string; bus: string; text: string } | undefined
  for (const line of tree.split('\n')) {
    const indent = line.search(/\S/)
    const bus = /^\s*bus: (\S+)/.exec(line)?.[1]
    const [, type, id] = /^\s*dev: ([\w-]+), id "(.*)"/.exec(line) ?? []
    if (bus !== undefined) {
      while ((buses.at(-1)?.indent ?? -1) >= indent) buses.pop()
      buses.push({ indent, name: bus })
      own = undefined
    } else if (type !== undefined && id !== undefined) {
      while ((buses.at(-1)?.indent ?? -1) >= indent) buses.pop()
      own = { type, bus: buses.at(-1)?.name ?? '', text: '' }
      devices.set(id, own)
    } else if (own !== undefined) own.text += `${line}\n`
  }
  return devices
}

/** That QEMU has each device of the machine at its place. */
function expectHardware(machine: Machine): void {
  const hardware = hardwareOf(machine)
  expect(hardware.cpus).toBe(machine.cpu.present)
  expect(hardware.memoryBytes).toBe(machine.memory.sizeMib * 2 ** 20)
  for (const [key, { address, builtIn, kind, properties }] of Object.entries(machine.devices)) {
    if (builtIn || kind === 'display' || kind === 'firmware-item') continue
    if (kind === 'generation-id') {
      expect(hardware.ids).toContain(qemuName(key))
      continue
    }
    const found = hardware.devices.get(qemuName(key))
    if (found === undefined) throw new Error(`${key}: not in QEMU`)
    if (address?.type === 'pci') {
      const [slot, func] = [address.slot.toString(16).padStart(2, '0'), address.function]
      expect(`${key} ${/addr = (\S+)/.exec(found.text)?.[1]}`).toBe(`${key} ${slot}.${func}`)
      const port = Object.entries(machine.devices).find(
        ([, { properties: own }]) => (own.chassis ?? own.chassis_nr) === address.bus,
      )
      expect(found.bus).toBe(
        address.bus === 0
          ? machine.board.machine === 'pc-q35-7.2'
            ? 'pcie.0'
            : 'pci.0'
          : qemuName(port?.[0] ?? ''),
      )
    }
    if (typeof properties.mac === 'string') expect(hardware.tree).toContain(`mac = "${properties.mac}"`)
    if (typeof properties.serial === 'string')
      expect(hardware.tree).toContain(`serial = "${properties.serial}"`)
  }
}

describe('a real QEMU, paused', () => {
  it('has the hardware of the example of the proposal', () => {
    const path = join(import.meta.dirname, '../../../fixtures/machines/kubevirt-vm.yaml')
    const document = readDocument(parseYaml(readFileSync(path, 'utf8')))
    expectHardware(expand(document, { isPrivileged: true }))
  })

  it('has as many CPUs as a machine may have, and no more', () => {
    expectHardware(expanded({ cpu: 255 }))
    expectHardware(expanded({ cpu: { topology: { sockets: 63, cores: 3 }, present: 1 } }))
    const machine = expanded({ cpu: 255 })
    const topology = { sockets: 85, cores: 3, threads: 1 }
    expect(() => hardwareOf({ ...machine, cpu: { ...machine.cpu, topology } })).toThrow('X2APIC')
  })

  it('has 60 cards of pc behind bridges, and 100 disks of q35 in root ports', () => {
    expectHardware(expanded({ machine: 'pc', network: Array(60).fill({ source: 'lan' }) }))
    expectHardware(expanded({ storage: Array(100).fill({ source: 'a' }) }))
  })

  it(
    `has the hardware of ${MACHINES} random documents`,
    async () => {
      const qemu = askedQemu('qemu-system-x86_64', 'tcg')
      const machines = fc.sample(documents, MACHINES * 30).flatMap((value) => {
        try {
          return [expand(readDocument(value), { isPrivileged: false })]
        } catch (error) {
          expect(error).toBeInstanceOf(AgentError)
          return []
        }
      })
      const possible = machines.filter(isPossibleHere).slice(0, MACHINES)
      expect(possible.length).toBe(MACHINES)
      for (const machine of machines) await checkHardware(machine, qemu)
      for (const machine of possible) expectHardware(machine)
    },
    SAMPLE_MS,
  )
})

/** Without KVM there is no CPU model `host`, and without daemons neither vsock nor virtio-fs. */
function isPossibleHere({ cpu, devices }: Machine): boolean {
  const lacking = Object.values(devices).some(
    ({ model }) => model === 'virtio-vsock' || model === 'vhost-user-fs',
  )
  return cpu.model !== 'host' && !lacking
}
