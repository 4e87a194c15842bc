import { AgentError } from '../../base/errors.ts'
import { refuse } from '../spec/component-path.ts'
import type { Machine, MachineDevice } from './machine.ts'

/** How many CPUs the machine has, with those that were plugged in. */
export function presentCpus({ cpu, devices }: Pick<Machine, 'cpu' | 'devices'>): number {
  return cpu.present + Object.values(devices).filter(({ kind }) => kind === 'cpu').length
}

/**
 * One CPU more (`cpu: 1`), at the first free place of the machine. Throws INVALID_ARGUMENT, or FAILED_PRECONDITION when the machine
 * takes none.
 */
export function pluggedCpu(machine: Machine, wish: unknown, at: string): MachineDevice {
  if (wish !== 1) refuse(at, 'want 1, a CPU for each key')
  if (machine.board.acpi) return cpuAt(machine, freeCpu(machine))
  throw new AgentError('FAILED_PRECONDITION', 'the machine has no ACPI, by which its guest learns of a CPU')
}

/** A CPU of another machine, at its own place where that is free. Throws FAILED_PRECONDITION without a free place. */
export function movedCpu(machine: Machine, device: MachineDevice): MachineDevice {
  const isFree = freeCpus(machine).some((number) => placeText(cpuAt(machine, number)) === placeText(device))
  return isFree ? device : cpuAt(machine, freeCpu(machine))
}

function freeCpu(machine: Machine): number {
  const [first] = freeCpus(machine)
  if (first !== undefined) return first
  const text = `no room for another CPU, all ${machine.cpu.count} are present`
  throw new AgentError('FAILED_PRECONDITION', text)
}

/** QEMU numbers the threads of a core, then those of the next one. The first numbers are present at the start. */
function freeCpus(machine: Machine): readonly number[] {
  const { count, present } = machine.cpu
  const taken = new Set(
    Object.values(machine.devices).flatMap((device) => (device.kind === 'cpu' ? [placeText(device)] : [])),
  )
  const room = Array.from({ length: count - present }, (_, index) => present + index)
  return room.filter((number) => !taken.has(placeText(cpuAt(machine, number))))
}

function cpuAt({ cpu: { topology } }: Machine, number: number): MachineDevice {
  const { cores, threads } = topology
  const core = Math.floor(number / threads)
  const properties = {
    'socket-id': Math.floor(core / cores),
    'core-id': core % cores,
    'thread-id': number % threads,
  }
  // Its model is that of the machine's other CPUs.
  return { kind: 'cpu', model: 'cpu', properties }
}

function placeText({ properties }: MachineDevice): string {
  return ['socket-id', 'core-id', 'thread-id'].map((name) => properties[name]).join(':')
}
