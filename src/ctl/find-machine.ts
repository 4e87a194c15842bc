import { setTimeout as delay } from 'node:timers/promises'
import { AgentError } from '../base/errors.ts'
import { ADDRESS_FORMS, type Address } from '../client/connection/address.ts'
import { type Machine, machinesFolder, readEntry, runningMachines } from '../client/machines/entry.ts'
import { isMachineName } from '../client/machines/machine-name.mjs'
import { UsageError } from './command.ts'

const LOOK_MS = 100

/**
 * The agent's address in machine `name`, or in the only one that runs, within `waitMs`. Throws {@link UsageError} when
 * no machine or several run, UNAVAILABLE when the machine does not run or still boots.
 */
export async function findMachine(options: {
  readonly name: string | undefined
  readonly env: Readonly<Record<string, string | undefined>>
  readonly waitMs: number
  readonly signal: AbortSignal
}): Promise<Address> {
  const { env, name, signal, waitMs } = options
  if (name !== undefined && !isMachineName(name))
    throw new UsageError(
      `address ${JSON.stringify(`microvm://${name}`)}: no name of a machine, want such as microvm://ant`,
    )
  const folder = machinesFolder(env)
  const deadline = performance.now() + waitMs
  for (;;) {
    const found = look(folder, name)
    if (!(found instanceof Error)) return found
    if (performance.now() >= deadline) throw found
    await delay(LOOK_MS, undefined, { signal })
  }
}

/** Returns an error when a wait may help, and throws an error otherwise. */
function look(folder: string, name: string | undefined): Address | Error {
  const machine = name === undefined ? onlyMachine(folder) : namedMachine(folder, name)
  if (machine instanceof Error) return machine
  if (machine.address !== undefined) return machine.address
  const text = `machine "${machine.name}": boots still (pid ${machine.pid}), wait for it with --wait`
  return new AgentError('UNAVAILABLE', text)
}

function onlyMachine(folder: string): Machine | Error {
  const machines = runningMachines(folder)
  const [machine, ...others] = machines
  if (machine === undefined) {
    return new UsageError(
      `no address, and no machine of this user runs; start one with ./microvm run, or give --address with ${ADDRESS_FORMS}`,
    )
  }
  if (others.length > 0)
    throw new UsageError(`several machines run: ${namesOf(machines)}; want -a microvm://NAME`)
  return machine
}

function namedMachine(folder: string, name: string): Machine | Error {
  const entry = readEntry(folder, name)
  if (entry?.kind === 'runs') return entry.machine
  if (entry?.kind === 'invalid')
    throw new AgentError('UNAVAILABLE', `machine "${name}": ${folder}/${name}: ${entry.reason}`)
  const machines = runningMachines(folder)
  const hint =
    machines.length > 0
      ? `, want one of ${namesOf(machines)}`
      : `; start it with ./microvm run --name ${name}`
  return new AgentError('UNAVAILABLE', `machine "${name}": not running${hint}`)
}

function namesOf(machines: readonly Machine[]): string {
  return machines.map(({ name }) => name).join(', ')
}
