import { setTimeout as delay } from 'node:timers/promises'
import { abortable } from '../base/abort.ts'
import { type ConsoleTail, isFromUserSpace } from './console-tail.ts'
import { cpuDemands } from './lock-up.ts'

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
