import { setTimeout as delay } from 'node:timers/promises'
import { AgentError } from '../base/errors.ts'
import { ADDRESS_FORMS, type Address } from '../client/connection/address.ts'
import { runningInDaemon, runsInDaemon } from '../client/daemon/daemon-machines.ts'
import { daemonSocket } from '../client/daemon/daemon-socket.mjs'
import { type Machine, machinesFolder, readEntry, runningMachines } from '../client/machines/entry.ts'
import { isMachineName } from '../client/machines/machine-name.mjs'
import { UsageError } from './command.ts'

const LOOK_MS = 100

interface Places {
  /** Of the machines of this user's own runs. */
  readonly folder: string
  /** Of the daemon, which may not run. */
  readonly socket: string
  readonly signal: AbortSignal
}

/**
 * The agent's address in machine `name`, or in the only one that runs, within `waitMs`. Runs of this user come before the
 * daemon's instances. Throws {@link UsageError} when no machine or several run, UNAVAILABLE when the machine does not run or
 * still boots.
 */
export async function findMachine(options: {
  readonly name: string | undefined
  readonly env: Readonly<Record<string, string | undefined>>
  readonly waitMs: number
  readonly signal: AbortSignal
}): Promise<Address> {
  const { env, name, signal, waitMs } = options
  if (name !== undefined && !isKey(name))
    throw new UsageError(
      `address ${JSON.stringify(`microvm://${name}`)}: no name of a machine, want such as microvm://ant`,
    )
  const places = { folder: machinesFolder(env), socket: daemonSocket(undefined, env), signal }
  const deadline = performance.now() + waitMs
  for (;;) {
    const found = await (name === undefined ? onlyMachine(places) : namedMachine(places, name))
    if (!(found instanceof Error)) return found
    if (performance.now() >= deadline) throw found
    await delay(LOOK_MS, undefined, { signal })
  }
}

/** Whether the text can be the key of an instance (proto/microvm/instance/v1/instance.proto). */
function isKey(text: string): boolean {
  return /^[^\p{Cc}/]+$/u.test(text) && Buffer.byteLength(text) <= 128
}

/** Returns an error when a wait may help, and throws an error otherwise. */
async function onlyMachine(places: Places): Promise<Address | Error> {
  const machines = runningMachines(places.folder)
  const keys = await runningInDaemon(places.socket, places.signal)
  const names = [...machines.map(({ name }) => name), ...keys]
  if (names.length > 1)
    throw new UsageError(`several machines run: ${names.join(', ')}; want -a microvm://NAME`)
  const [[machine], [key]] = [machines, keys]
  if (machine !== undefined) return addressOf(machine)
  if (key !== undefined) return { kind: 'instance', socket: places.socket, key }
  return new UsageError(
    `no address, and no machine of this user runs; start one with ./microvm run, or give --address with ${ADDRESS_FORMS}`,
  )
}

async function namedMachine(places: Places, name: string): Promise<Address | Error> {
  const { folder, signal, socket } = places
  const entry = isMachineName(name) ? readEntry(folder, name) : undefined
  if (entry?.kind === 'runs') return addressOf(entry.machine)
  if (entry?.kind === 'invalid')
    throw new AgentError('UNAVAILABLE', `machine "${name}": ${folder}/${name}: ${entry.reason}`)
  const runs = await runsInDaemon(socket, name, signal)
  if (runs) return { kind: 'instance', socket, key: name }
  if (runs !== undefined)
    return new AgentError(
      'UNAVAILABLE',
      `machine "${name}": not running; start it with ./microvm start ${name}`,
    )
  const names = [
    ...runningMachines(folder).map((machine) => machine.name),
    ...(await runningInDaemon(socket, signal)),
  ]
  const start = isMachineName(name) ? `start it with ./microvm run --name ${name}` : 'see ./microvm ps'
  const hint = names.length > 0 ? `, want one of ${names.join(', ')}` : `; ${start}`
  return new AgentError('UNAVAILABLE', `machine "${name}": not running${hint}`)
}

function addressOf({ address, name, pid }: Machine): Address | Error {
  if (address !== undefined) return address
  return new AgentError('UNAVAILABLE', `machine "${name}": boots still (pid ${pid}), wait for it with --wait`)
}
