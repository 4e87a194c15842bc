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

/** Steps are idempotent: a restarted agent runs all of them again, and each does only what is missing. */
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
    { name: 'static address', run: setStaticAddress },
  ]
}

/** What slows the agent down for some milliseconds waits so long: those who have waited for the boot are answered before it. */
export const AFTER_BOOT_MS = 1000

/** The rest of the boot, which runs while the API's socket is open. */
const STEPS: readonly BootStep[] = [
  { name: 'limits', run: raiseGuestLimits },
  { name: 'own process', run: prepareOwnProcess },
  { name: 'mounts', run: mountGuestFileSystems },
  { name: 'device links', run: linkDevices },
  { name: 'cgroups', run: setUpCgroups },
  { name: 'loopback', run: setLoopbackUp },
  { name: 'device drivers', run: loadDeviceDrivers },
  { name: 'extensions', run: mountExtensions },
  // Needs the firmware's driver, which the step `device drivers` loads.
  { name: 'identity', run: takeIdentity },
]

/** These steps also run when another init booted the guest. */
const STATE_STEPS: readonly BootStep[] = [{ name: 'state folder', run: mountStateFolder }]

/** Runs the steps that the API's socket needs; does nothing without `init`. Throws INTERNAL with the failed step. */
export async function prepareTransport(context: BootContext, init: boolean): Promise<void> {
  if (init) await runSteps(context, stepsBeforeSocket(context.config.serverAddress))
}

/** Boots, restores, and opens `gate`. A failed boot fails `gate`, so that every call is answered with the reason. */
export async function bootBehindGate(
  context: BootContext,
  given: Pick<AgentArguments, 'init'> & { readonly channel: Pick<AgentArguments['channel'], 'restarts'> },
  gate: BootGate,
  restore: () => Promise<void>,
): Promise<void> {
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
  context.os.clock.startTimer(AFTER_BOOT_MS, () => keepInMemory(context))
}

/** Prepares a bare guest for containers; does nothing without `init`. Throws INTERNAL with the failed step. */
export async function boot(context: BootContext, init: boolean): Promise<void> {
  if (init) await runSteps(context, STEPS)
  else context.log.info('boot left to the system that started the agent')
}

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

/** The kernel gives `lo` its addresses when it is set up. */
async function setLoopbackUp({ os }: BootContext): Promise<StepOutcome> {
  const loopback = os.network.links().find((link) => link.loopback)
  if (loopback === undefined || loopback.up) return 'already'
  os.network.setLink(loopback.index, { up: true })
  return 'done'
}

/**
 * Applies the kernel parameter `ip=CLIENT:SERVER:GATEWAY:NETMASK:HOSTNAME:DEVICE:…` (nfsroot.rst). The kernel applies it
 * only with a built-in network driver, which distribution kernels lack.
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
