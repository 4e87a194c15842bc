import { AgentError, messageOf } from '../../base/errors.ts'
import { broadcastOf, parseIp, prefixLengthOfMask } from '../../base/ip-address.ts'
import type { AgentArguments } from '../config/arguments.ts'
import { setUpCgroups } from './cgroups.ts'
import { mountExtensions } from './extensions.ts'
import type { BootGate } from './gate.ts'
import { raiseGuestLimits } from './guest-limits.ts'
import { takeIdentity } from './identity.ts'
import { loadDeviceDrivers, loadNetworkDriver, loadVsock } from './modules.ts'
import { linkDevices, mountGuestFileSystems } from './mounts.ts'
import { keepInMemory, prepareOwnProcess } from './own-process.ts'
import { mountStateFolder } from './state-folder.ts'
import type { BootContext, StepOutcome } from './step.ts'

/**
 * One thing to do at boot. A step looks before it acts: after a restart of the agent it checks everything again and
 * does only what is missing.
 */
interface BootStep {
  readonly name: string
  readonly run: (context: BootContext) => Promise<StepOutcome>
}

/** The steps without which the API's socket cannot be opened. */
function stepsBeforeSocket(serverAddress: string): readonly BootStep[] {
  if (serverAddress.startsWith('vsock:')) return [{ name: 'vsock modules', run: loadVsock }]
  if (!serverAddress.startsWith('tcp:')) return []
  return [
    { name: 'network driver', run: loadNetworkDriver },
    // The address of the kernel parameter `ip=`.
    { name: 'static address', run: setStaticAddress },
  ]
}

/** The rest of the boot, which runs while the API's socket is open. */
const STEPS: readonly BootStep[] = [
  // Numbers of processes, open files, inotify instances and keys for the whole guest.
  { name: 'limits', run: raiseGuestLimits },
  // Signals, limits, priority, umask and PATH of the agent itself.
  { name: 'own process', run: prepareOwnProcess },
  // Check /proc, /sys and /dev; mount /dev/shm, /dev/pts, /run and /tmp.
  { name: 'mounts', run: mountGuestFileSystems },
  // /dev/ptmx, /dev/fd and /dev/std*.
  { name: 'device links', run: linkDevices },
  // Mount /sys/fs/cgroup (v2, or v1 on request) and enable its controllers.
  { name: 'cgroups', run: setUpCgroups },
  { name: 'loopback', run: setLoopbackUp },
  // Kernel modules of the devices that the host may plug in.
  { name: 'device drivers', run: loadDeviceDrivers },
  // Disks that the shim attached as extensions of the guest.
  { name: 'extensions', run: mountExtensions },
  // The host name, and the addresses that the VM metadata gives. Needs the firmware's driver from the drivers' step.
  { name: 'identity', run: takeIdentity },
]

/** Whatever booted the guest. */
const STATE_STEPS: readonly BootStep[] = [{ name: 'state folder', run: mountStateFolder }]

/**
 * Runs the steps that the API's socket needs. Does nothing unless the agent boots the guest (`init`). Throws INTERNAL
 * naming the step that failed.
 */
export async function prepareTransport(context: BootContext, init: boolean): Promise<void> {
  if (init) await runSteps(context, stepsBeforeSocket(context.config.serverAddress))
}

/**
 * Boots the guest, then goes on with what the previous agent left (`restore`), and opens `gate`. When the boot fails,
 * logs the failure and fails `gate` with it: the agent goes on serving and answers every call with the reason. Throws
 * what `restore` throws.
 */
export async function bootBehindGate(
  context: BootContext,
  given: Pick<AgentArguments, 'channel' | 'init'>,
  gate: BootGate,
  restore: () => Promise<void>,
): Promise<void> {
  keepInMemory(context)
  try {
    await boot(context, given.init)
    await runSteps(context, STATE_STEPS)
  } catch (error) {
    context.log.critical('boot failed', { error: messageOf(error) })
    gate.fail(messageOf(error), error)
    return
  }
  await restore()
  gate.open()
  context.log.info('booted', { restarts: given.channel.restarts })
}

/**
 * Prepares a bare guest for containers. Safe after a restart of the agent: it leaves alone what is in place. Does
 * nothing on a system with an init of its own (`init` false). Throws INTERNAL naming the step that failed.
 */
export async function boot(context: BootContext, init: boolean): Promise<void> {
  if (init) await runSteps(context, STEPS)
  else context.log.info('boot left to the system that started the agent')
}

/** Runs the steps one after the other and logs one line for each. Throws INTERNAL naming the step that failed. */
async function runSteps(context: BootContext, steps: readonly BootStep[]): Promise<void> {
  for (const { name, run } of steps) {
    const startedMs = context.os.clock.monotonicMs()
    try {
      const outcome = await run(context)
      const ms = context.os.clock.monotonicMs() - startedMs
      context.log.info('boot step', { step: name, outcome, ms: ms.toFixed(1) })
    } catch (error) {
      throw new AgentError('INTERNAL', `boot step ${name}: ${messageOf(error)}`, { cause: error })
    }
  }
}

/** Sets `lo` up; the kernel then gives it its addresses. */
async function setLoopbackUp({ os }: BootContext): Promise<StepOutcome> {
  const loopback = os.network.links().find((link) => link.loopback)
  if (loopback === undefined || loopback.up) return 'already'
  os.network.setLink(loopback.index, { up: true })
  return 'done'
}

/**
 * Gives an interface the address of the kernel parameter `ip=CLIENT:SERVER:GATEWAY:NETMASK:HOSTNAME:DEVICE:…`
 * (nfsroot.rst). The kernel itself does that only with a built-in network driver, which distribution kernels lack.
 * Throws INVALID_ARGUMENT when address, mask or device is missing, and INTERNAL when no such device exists.
 */
async function setStaticAddress({ os, config }: BootContext): Promise<StepOutcome> {
  if (config.kernelIp === '') return 'already'
  const [address = '', , , mask = '', , device = ''] = config.kernelIp.split(':')
  const bytes = parseIp(address)
  const prefixLength = prefixLengthOfMask(mask)
  if (bytes === undefined || prefixLength === undefined || device === '') {
    throw new AgentError('INVALID_ARGUMENT', `ip=${config.kernelIp}: address, mask or device is missing`)
  }
  const link = os.network.links().find(({ name }) => name === device)
  if (link === undefined) throw new AgentError('INTERNAL', `ip=${config.kernelIp}: no device ${device}`)
  os.network.replaceAddress({
    linkIndex: link.index,
    family: 'ipv4',
    address,
    prefixLength,
    broadcast: broadcastOf(bytes, prefixLength),
    scope: 0,
    flags: 0,
  })
  os.network.setLink(link.index, { up: true })
  return 'done'
}
