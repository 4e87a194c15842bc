import { randomUUID } from 'node:crypto'
import { Readable } from 'node:stream'
import { setTimeout as delay } from 'node:timers/promises'
import { abortable, neverAborted } from '../../base/abort.ts'
import { AgentError, messageOf } from '../../base/errors.ts'
import { type DaemonClient, openDaemon } from '../../client/daemon/daemon-client.ts'
import {
  AttachRequest,
  AttachResponse,
  type Backend,
  ChangeStateRequest_Change as Change,
  type DeepPartial,
  type Device,
  type EnsureInstanceRequest,
  type Instance,
  InstanceServiceDefinition,
  State,
  WatchInstancesRequest,
  WatchInstancesResponse,
} from '../../gen/microvm/instance/v1/instance.ts'
import { ConsoleTail } from '../../host/qemu/console-tail.ts'

/** A machine that a service made for one run. */
export interface RunMachine {
  /** Of QEMU. */
  readonly pid: number
  readonly cid: number
  readonly console: ConsoleTail
  /** Fires when the machine has ended, with an UNAVAILABLE error that says how. */
  readonly gone: AbortSignal
  run(signal: AbortSignal): Promise<void>
  plug(key: string, device: Device, backend: Backend, signal: AbortSignal): Promise<void>
  /** Waits for the end of the machine, at most so long. */
  awaitEnd(graceMs: number): Promise<void>
  /** Ends the machine and forgets it, with all that the console has said. Never throws. */
  close(): Promise<void>
}

/** The label by which a run knows its own machine. */
const RUN = 'microvm.run'

/** Between two looks for a machine that is about to be made. */
const LOOK_MS = 20
/** How long the tool waits for the daemon to remove the machine. The removal goes on after that. */
const REMOVE_MS = 30_000
/** The last bytes of the console arrive within moments of the machine's end. */
const CONSOLE_MS = 2000

/**
 * Makes a machine, paused unless it is a clone, by the service at `socket`. Throws ALREADY_EXISTS when the key is in use. On failure nothing is
 * left there.
 */
export async function makeMachine(options: {
  readonly socket: string
  readonly key: string
  readonly init: DeepPartial<Pick<EnsureInstanceRequest, 'saved' | 'specification'>>
  readonly signal: AbortSignal
}): Promise<RunMachine> {
  const { socket, key, init, signal } = options
  // The machine is removed also when `signal` has fired.
  const daemon = await openDaemon(socket, neverAborted)
  const run = randomUUID()
  const properties = { key, tenant: '', labels: { [RUN]: run } }
  const making = daemon.calls.ensureInstance({ properties, ...init })
  const remove = () => removeUnlessOthers(daemon, { key, run, making })
  try {
    const instance = await abortable(making, signal)
    if (instance.properties?.labels[RUN] !== run) throw inUse(key)
    return machineOf(daemon, instance, remove)
  } catch (error) {
    const isOthers = await remove().catch(() => false)
    daemon.close()
    throw isOthers && !signal.aborted ? inUse(key) : error
  }
}

function inUse(key: string): AgentError {
  return new AgentError('ALREADY_EXISTS', `instance ${key}: exists already, want another --name`)
}

function machineOf(daemon: DaemonClient, instance: Instance, remove: () => Promise<unknown>): RunMachine {
  const { sequence, properties, qemuPid: pid, cid } = instance
  const key = properties?.key ?? ''
  const gone = new AbortController()
  const ended = endOf(daemon, key, sequence).then((how) => gone.abort(new AgentError('UNAVAILABLE', how)))
  const console = new ConsoleTail(Readable.from(consoleOf(daemon, key)))
  return {
    pid,
    cid,
    console,
    gone: gone.signal,
    run: async (signal) => {
      await daemon.calls.changeState({ key, change: Change.RUN, graceMs: 0 }, { signal })
    },
    plug: async (deviceKey, device, backend, signal) => {
      await daemon.calls.plug({ key, deviceKey, device, backend }, { signal })
    },
    awaitEnd: async (graceMs) => void (await within(graceMs, ended)),
    close: async () => {
      await remove().catch(() => {})
      await within(CONSOLE_MS, console.ended)
      daemon.close()
    },
  }
}

async function within(ms: number, work: Promise<unknown>): Promise<void> {
  const over = new AbortController()
  await Promise.race([work, delay(ms, undefined, { signal: over.signal }).catch(() => {})])
  over.abort()
}

/** Removes the machine, also one that is still being made. Resolves with true when the key is of another one. */
async function removeUnlessOthers(
  { calls }: DaemonClient,
  { key, run, making }: { readonly key: string; readonly run: string; readonly making: Promise<unknown> },
): Promise<boolean> {
  let isMaking = true
  const made = making.then(
    () => {},
    () => {},
  )
  void made.then(() => {
    isMaking = false
  })
  for (;;) {
    const isLast = !isMaking
    try {
      const { properties } = await calls.getInstance({ key }, { timeoutMs: REMOVE_MS })
      if (properties?.labels[RUN] !== run) return true
      await calls.remove({ key }, { timeoutMs: REMOVE_MS })
      return false
    } catch (error) {
      if (isLast || !(error instanceof AgentError) || error.code !== 'NOT_FOUND') throw error
    }
    await within(LOOK_MS, made)
  }
}

const ENDED: readonly State[] = [State.STOPPED, State.TERMINATED]

/** Resolves with how the machine has ended. */
async function endOf(daemon: DaemonClient, key: string, after: bigint): Promise<string> {
  try {
    const request = WatchInstancesRequest.encode({ after, once: false }).finish()
    for await (const answer of read(daemon, 'watchInstances', request)) {
      for (const change of WatchInstancesResponse.decode(answer).changes)
        if (change.key === key && (ENDED.includes(change.state) || change.kind === 'removed'))
          return change.text
    }
    return 'the daemon has ended'
  } catch (error) {
    return `the daemon is lost: ${messageOf(error)}`
  }
}

/** From its first byte on. A reader that falls behind is cut off, and goes on with what is kept. */
async function* consoleOf(daemon: DaemonClient, key: string): AsyncGenerator<Uint8Array> {
  try {
    for (let offset = 0n, position = -1n; position !== offset; ) {
      position = offset
      const request = AttachRequest.encode({ key, port: 0, offset }).finish()
      for await (const answer of read(daemon, 'attach', request)) {
        const { data, offset: at } = AttachResponse.decode(answer)
        offset = at + BigInt(data.length)
        yield data
      }
    }
  } catch {
    // The machine has ended, or the service: both are told elsewhere.
  }
}

async function* read(
  daemon: DaemonClient,
  method: 'attach' | 'watchInstances',
  request: Uint8Array,
): AsyncGenerator<Uint8Array> {
  const { fullName, methods } = InstanceServiceDefinition
  const call = daemon.stream(fullName, methods[method].name)
  await call.send(request)
  call.end()
  yield* call.answers
}
