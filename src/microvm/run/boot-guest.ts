import type { Duplex } from 'node:stream'
import { abortable } from '../../base/abort.ts'
import { AgentError } from '../../base/errors.ts'
import { undoAndThrow } from '../../base/undo.ts'
import type { Address } from '../../client/connection/address.ts'
import { connectAgent } from '../../client/connection/connect-agent.ts'
import { dial } from '../../client/connection/dial.ts'
import type { RegistryEnvironment } from '../../client/machines/entry.ts'
import type { Specification } from '../../gen/microvm/instance/v1/instance.ts'
import { agentAddress } from '../../host/instance/connect-agent.ts'
import { runFolderOf } from '../../host/instance/open-host-instances.ts'
import { type ConsoleTail, isFromUserSpace, isKernelBrokenByEmulation } from '../../host/qemu/console-tail.ts'
import { LockUpWatch } from '../../host/qemu/lock-up.ts'
import { chooseLink } from '../../host/qemu/vsock/choose-link.ts'
import type { GuestLink } from '../../host/qemu/vsock/guest-link.ts'
import { type RunService, startRunService } from '../../host/service/run-service.ts'
import { versionedMachine } from '../../host/spec/check-spec.ts'
import { specKey } from '../../host/spec/spec-key.ts'
import { specToProto } from '../../host/spec/to-proto.ts'
import type { TtrpcClient } from '../../rpc/ttrpc/client.ts'
import { type GuestParts, guestSpec } from './guest-spec.ts'
import { makeMachine, type RunMachine } from './run-machine.ts'

/** Many times the few seconds that a guest needs under emulation. */
const BOOT_TIMEOUT_MS = 120_000

export interface RunnerEnvironment extends RegistryEnvironment, Readonly<Record<string, string | undefined>> {
  readonly MICROVM_ACCEL?: string | undefined
  readonly MICROVM_VSOCK?: string | undefined
}

/** A booted guest whose agent answers. The caller of {@link bootGuest} calls `close`. */
export interface Guest {
  readonly vm: RunMachine
  /** The connection on which the agent answered the health check. */
  readonly connection: TtrpcClient
  /** Where the agent listens, for others of this host. */
  readonly address: Address
  readonly lockUp: Pick<LockUpWatch, 'describe'>
  /** Connects to the agent once more. */
  connect(signal: AbortSignal): Promise<Duplex>
  /** Ends the guest at once, if it still runs, and everything that was started for it. Never throws. */
  close(): Promise<void>
}

/** Where a machine is made, and how its agent is reached. */
export interface Place {
  readonly socket: string
  readonly key: string
  readonly link: GuestLink
  /** The specification as the place takes it. */
  kept(specification: Specification): Specification
  address(specification: Specification, cid: number): Address
  close(): Promise<void>
}

export interface BootOptions {
  readonly parts: Omit<GuestParts, 'link'>
  /** Is closed with the guest. */
  readonly place: Place
  readonly started: (vm: RunMachine) => void
  readonly progress: (line: string) => void
  readonly signal: AbortSignal
}

/**
 * Boots a guest and waits until its agent answers; once more when the emulation broke its kernel. On failure, ends
 * everything that it started and rejects with the reason of `signal`, or with how QEMU ended.
 */
export async function bootGuest({ progress, started, ...boot }: BootOptions): Promise<Guest> {
  const { place, signal } = boot
  let vm: RunMachine | undefined
  const keep = (running: RunMachine) => {
    vm = running
    started(running)
  }
  try {
    return await bootOnce(boot, keep).catch(async (error) => {
      if (signal.aborted || vm === undefined || !isKernelBrokenByEmulation(vm.console.lines)) throw error
      progress('the emulation broke the kernel of the guest, as QEMU before 8.1 may: booting once more')
      return await bootOnce(boot, keep)
    })
  } catch (error) {
    return await undoAndThrow(error, place.close)
  }
}

async function bootOnce(
  { parts, place, signal }: Pick<BootOptions, 'parts' | 'place' | 'signal'>,
  started: (vm: RunMachine) => void,
): Promise<Guest> {
  const { socket, key, link } = place
  const specification = place.kept(specToProto(guestSpec({ ...parts, link })))
  const vm = await makeMachine({ socket, key, init: { specification }, signal })
  try {
    started(vm)
    await vm.run(signal)
    const lockUp = new LockUpWatch(vm)
    const address = place.address(specification, vm.cid)
    const connect = (limit: AbortSignal) => dial(address, limit)
    const throughService = (limit: AbortSignal) => dial({ kind: 'instance', socket, key }, limit)
    const connection = await withinBootTime(lockUp, async (late) => {
      const ended = AbortSignal.any([signal, vm.gone, late])
      // The service waits until the guest's vsock bears a connection.
      if (address.kind === 'hvsock') (await connectAgent({ connect: throughService }, ended)).close()
      else await userSpaceRuns(vm.console, ended)
      return await connectAgent({ connect }, ended)
    })
    const close = async () => {
      connection.close()
      await vm.close()
      await place.close()
    }
    return { vm, connection, address, lockUp, connect, close }
  } catch (error) {
    return await undoAndThrow(error, vm.close)
  }
}

/** The key of the only machine of a service in this process. */
const OWN_KEY = specKey('run')

/** A service in this process, whose folder is `folder`. */
export function ownPlace({
  folder,
  link,
  service,
}: {
  readonly folder: string
  readonly link: GuestLink
  readonly service: RunService
}): Place {
  return {
    ...service,
    key: OWN_KEY,
    link,
    kept: (specification) => specification,
    // By ConnectAgent the container's output would take four times as much of this host's CPUs.
    address: (specification, cid) =>
      agentAddress(specification, { folder: runFolderOf(folder), cid }) ?? {
        kind: 'instance',
        socket: service.socket,
        key: OWN_KEY,
      },
  }
}

/** The same, with the best way to reach the guest. The folder is a private one of this run. */
export async function openOwnPlace({
  folder,
  environment,
  progress,
  signal,
}: {
  readonly folder: string
  readonly environment: RunnerEnvironment
  readonly progress: (line: string) => void
  readonly signal: AbortSignal
}): Promise<Place> {
  const { MICROVM_ACCEL: acceleration, MICROVM_VSOCK: override } = environment
  const link = await abortable(chooseLink({ override, progress }), signal)
  return ownPlace({ folder, link, service: await startRunService({ folder, acceleration }) })
}

/** The daemon at `socket`. */
export function daemonPlace(socket: string, key: string, link: GuestLink): Place {
  return {
    socket,
    key,
    link,
    kept: keptByDaemon,
    address: () => ({ kind: 'instance', socket, key }),
    close: async () => {},
  }
}

/** The specification as a daemon takes it. */
export function keptByDaemon({ board, ...others }: Specification): Specification {
  return {
    ...others,
    board: board && { ...board, machine: versionedMachine(board.machine) },
    // A guest that panics reboots.
    rebootLimit: { count: 0, seconds: 1 },
  }
}

/** Calls `boot` with a signal that fires when the boot takes too long, and says what the guest shows then. */
async function withinBootTime<T>(lockUp: LockUpWatch, boot: (late: AbortSignal) => Promise<T>): Promise<T> {
  const late = new AbortController()
  const text = `agent: no answer within ${BOOT_TIMEOUT_MS / 1000} s`
  const onTime = async () => late.abort(new AgentError('UNAVAILABLE', (await lockUp.describe()) ?? text))
  const timer = setTimeout(() => void onTime(), BOOT_TIMEOUT_MS)
  try {
    return await boot(late.signal)
  } finally {
    clearTimeout(timer)
  }
}

/** A guest that logs nothing has booted by then, unless the machine is busy. */
const SILENT_BOOT_MS = 20_000

/**
 * Resolves at the first console line of user space, or after 20 s. QEMU's user network holds an earlier connection for seconds. Rejects
 * with the reason of `signal`.
 */
export async function userSpaceRuns(
  console: Pick<ConsoleTail, 'lines' | 'onLine'>,
  signal: AbortSignal,
): Promise<void> {
  if (console.lines.some(isFromUserSpace)) return
  const seen = Promise.withResolvers<void>()
  const stopListening = console.onLine((line) => isFromUserSpace(line) && seen.resolve())
  const timer = setTimeout(seen.resolve, SILENT_BOOT_MS)
  try {
    await abortable(seen.promise, signal)
  } finally {
    clearTimeout(timer)
    stopListening()
  }
}
