import { constants, readFileSync } from 'node:fs'
import { abortable } from '../base/abort.ts'
import { AgentError } from '../base/errors.ts'
import type { TtrpcClient } from '../rpc/ttrpc/client.ts'
import { chooseAcceleration } from './acceleration.ts'
import { connectAgent } from './connect-agent.ts'
import { type ConsoleTail, isFromUserSpace } from './console-tail.ts'
import { type GuestParts, guestSpec } from './guest-spec.ts'
import { hasAccess } from './has-access.ts'
import { undoAndThrow } from './undo-and-throw.ts'
import { startVm, type Vm } from './vm.ts'
import type { GuestLink } from './vsock/guest-link.ts'
import { openLink } from './vsock/open-link.ts'

/** Under emulation a guest needs some seconds; many times that is stuck. */
const BOOT_TIMEOUT_MS = 120_000

/** Longer than the kernel takes under emulation; only a guest told not to log lets it pass. */
const SILENT_BOOT_MS = 20_000

/** The environment variables the runner looks at. */
export interface RunnerEnvironment {
  readonly MICROVM_ACCEL?: string | undefined
  readonly MICROVM_VSOCK?: string | undefined
}

/** A booted guest whose agent answers. Whoever booted it calls `close`. */
export interface Guest {
  readonly vm: Vm
  /** The connection the first health check was answered on. */
  readonly connection: TtrpcClient
  readonly link: GuestLink
  /** Ends the guest at once, if it still runs, with everything that was started for it. Never throws. */
  close(): Promise<void>
}

export interface BootOptions {
  /** The machine; its link is chosen here. */
  readonly parts: Omit<GuestParts, 'link'>
  /** A folder of this run alone, which only this user can enter: it gets the sockets. */
  readonly folder: string
  readonly environment: RunnerEnvironment
  readonly progress: (line: string) => void
  /** Called as soon as QEMU runs. */
  readonly started?: (vm: Vm) => void
  readonly signal: AbortSignal
}

/**
 * Boots a guest and waits until its agent answers. When that fails, everything that was started has been ended; the
 * error is the signal's reason, or what became of QEMU.
 */
export async function bootGuest(options: BootOptions): Promise<Guest> {
  const { environment, folder, parts, progress, signal } = options
  const opening = openLink({ folder, override: environment.MICROVM_VSOCK, progress })
  const link = await linkUnlessAborted(opening, signal)
  try {
    const vm = await startVm(guestSpec({ ...parts, link }), accelerationHere(environment.MICROVM_ACCEL))
    try {
      options.started?.(vm)
      const connection = await withinBootTime(async (late) => {
        const ended = AbortSignal.any([signal, vm.gone, late])
        await signOfLife(vm.console, ended)
        return await connectAgent(link, ended)
      })
      return { vm, connection, link, close: () => closeAll(vm, connection, link) }
    } catch (error) {
      return await undoAndThrow(error, vm.kill)
    }
  } catch (error) {
    return await undoAndThrow(error, () => link.close())
  }
}

/** Opening a link may fetch the daemon: nobody who ends the run waits for that, and a link that comes late is closed. */
async function linkUnlessAborted(opening: Promise<GuestLink>, signal: AbortSignal): Promise<GuestLink> {
  try {
    return await abortable(opening, signal)
  } catch (error) {
    opening.then(
      (link) => link.close(),
      () => {},
    )
    throw error
  }
}

/**
 * Waits for the first console line of user space, or until a guest that logs nothing can be taken to be up. Connecting
 * earlier does harm: when a connection is asked for just as the guest's vsock driver starts, vhost-device-vsock 0.3.0
 * never answers it nor any later one (seen in 4 of some 50 boots).
 */
async function signOfLife(console: ConsoleTail, signal: AbortSignal): Promise<void> {
  if (console.lines.some(isFromUserSpace)) return
  const alive = Promise.withResolvers<void>()
  const stop = console.onLine((line) => isFromUserSpace(line) && alive.resolve())
  const timer = setTimeout(alive.resolve, SILENT_BOOT_MS)
  try {
    await abortable(alive.promise, signal)
  } finally {
    clearTimeout(timer)
    stop()
  }
}

/** Calls `boot` with a signal that fires when a guest that still boots is stuck. */
async function withinBootTime<T>(boot: (late: AbortSignal) => Promise<T>): Promise<T> {
  const late = new AbortController()
  const reason = new AgentError('UNAVAILABLE', `the agent did not answer within ${BOOT_TIMEOUT_MS / 1000} s`)
  const timer = setTimeout(() => late.abort(reason), BOOT_TIMEOUT_MS)
  try {
    return await boot(late.signal)
  } finally {
    clearTimeout(timer)
  }
}

async function closeAll(vm: Vm, connection: TtrpcClient, link: GuestLink): Promise<void> {
  connection.close()
  await vm.kill()
  await link.close()
}

function accelerationHere(override: string | undefined): ReturnType<typeof chooseAcceleration> {
  return chooseAcceleration({
    cpuinfo: readFileSync('/proc/cpuinfo', 'utf8'),
    kvmUsable: hasAccess('/dev/kvm', constants.R_OK | constants.W_OK),
    override,
  })
}
