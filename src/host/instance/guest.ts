import { constants, readFileSync } from 'node:fs'
import { setTimeout as delay } from 'node:timers/promises'
import { abortable } from '../../base/abort.ts'
import { AgentError } from '../../base/errors.ts'
import { undoAndThrow } from '../../base/undo.ts'
import { connectAgent } from '../../client/connection/connect-agent.ts'
import type { RegistryEnvironment } from '../../client/machines/entry.ts'
import type { TtrpcClient } from '../../rpc/ttrpc/client.ts'
import { type ConsoleTail, isFromUserSpace } from '../qemu/console-tail.ts'
import { chooseAcceleration, hasAccess } from '../qemu/host.ts'
import { cpuDemands, LockUpWatch } from '../qemu/lock-up.ts'
import { startVm, type Vm } from '../qemu/vm.ts'
import type { GuestLink } from '../qemu/vsock/guest-link.ts'
import { openLink } from '../qemu/vsock/open-link.ts'
import { type GuestParts, guestSpec } from './guest-spec.ts'

/** Many times the few seconds that a guest needs under emulation. */
const BOOT_TIMEOUT_MS = 120_000

export interface RunnerEnvironment extends RegistryEnvironment {
  readonly MICROVM_ACCEL?: string | undefined
  readonly MICROVM_VSOCK?: string | undefined
}

/** A booted guest whose agent answers. The caller of {@link bootGuest} calls `close`. */
export interface Guest {
  readonly vm: Vm
  /** The connection on which the agent answered the health check. */
  readonly connection: TtrpcClient
  readonly link: GuestLink
  readonly lockUp: Pick<LockUpWatch, 'describe'>
  /** Ends the guest at once, if it still runs, and everything that was started for it. Never throws. */
  close(): Promise<void>
}

export interface BootOptions {
  readonly parts: Omit<GuestParts, 'link'>
  /** A private folder of this run, for the sockets. Only this user may enter it. */
  readonly folder: string
  readonly environment: RunnerEnvironment
  readonly progress: (line: string) => void
  readonly started?: (vm: Vm) => void
  readonly signal: AbortSignal
}

/**
 * Boots a guest and waits until its agent answers. On failure, ends everything that it started and rejects with the
 * reason of `signal`, or with how QEMU ended.
 */
export async function bootGuest(options: BootOptions): Promise<Guest> {
  const { environment, folder, parts, progress, signal } = options
  const opening = openLink({ folder, override: environment.MICROVM_VSOCK, progress })
  const link = await linkUnlessAborted(opening, signal)
  try {
    const vm = await startVm(guestSpec({ ...parts, link }), accelerationHere(environment.MICROVM_ACCEL))
    try {
      options.started?.(vm)
      const lockUp = new LockUpWatch(vm)
      const connection = await withinBootTime(lockUp, async (late) => {
        const ended = AbortSignal.any([signal, vm.gone, late])
        await userSpaceRuns(vm, ended)
        return await connectAgent(link, ended)
      })
      return { vm, connection, link, lockUp, close: () => closeAll(vm, connection, link) }
    } catch (error) {
      return await undoAndThrow(error, vm.kill)
    }
  } catch (error) {
    return await undoAndThrow(error, () => link.close())
  }
}

/** Waits for the link or the signal. Opening may fetch the daemon and go on after the signal; then the link is closed. */
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

interface SilentBoot {
  /** Longer than the kernel takes under emulation, unless the machine is busy. */
  readonly shortestMs: number
  readonly longestMs: number
}

const SILENT_BOOT: SilentBoot = { shortestMs: 20_000, longestMs: 60_000 }

/** The CPUs that an idle guest wants at most, all threads of QEMU together. One that boots wants about one. */
const IDLE = 0.5

/**
 * Waits for the first console line of user space. A guest that logs nothing is up when its CPUs are idle after 20 s, and
 * in any case after 60 s. Rejects with the reason of `signal`.
 *
 * Connecting earlier does harm: a connection request that arrives when vhost-device-vsock 0.3.0 has been told of the
 * guest's memory but its driver's queues are not ready yet ends the daemon's one worker thread, for good.
 */
export async function userSpaceRuns(
  vm: { readonly pid: number; readonly console: Pick<ConsoleTail, 'lines' | 'onLine'> },
  signal: AbortSignal,
  silentBoot = SILENT_BOOT,
): Promise<void> {
  if (vm.console.lines.some(isFromUserSpace)) return
  const alive = Promise.withResolvers<void>()
  const stopListening = vm.console.onLine((line) => isFromUserSpace(line) && alive.resolve())
  const over = new AbortController()
  // It rejects only after this function has returned.
  silentGuestIsUp(vm.pid, silentBoot, over.signal).then(alive.resolve, () => {})
  try {
    await abortable(alive.promise, signal)
  } finally {
    over.abort()
    stopListening()
  }
}

async function silentGuestIsUp(pid: number, times: SilentBoot, over: AbortSignal): Promise<void> {
  const begin = performance.now()
  await delay(times.shortestMs, undefined, { signal: over })
  while (performance.now() - begin < times.longestMs) {
    over.throwIfAborted()
    const demand = (await cpuDemands(pid)).reduce((sum, each) => sum + each, 0)
    if (demand < IDLE) return
  }
}
