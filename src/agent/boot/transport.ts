import { loadModules, virtioBuses } from './modules.ts'
import { setStaticAddress } from './network.ts'
import type { BootContext, BootStep, StepOutcome } from './step.ts'
import { runSteps } from './step.ts'

/**
 * What must be there before the API's socket can be opened, and nothing more: the rest of the boot goes on behind the
 * open socket. Does nothing unless the agent is in charge of the boot.
 */
export async function prepareTransport(context: BootContext, init: boolean): Promise<void> {
  if (init) await runSteps(context, transportSteps(context.config.serverAddress))
}

function transportSteps(serverAddress: string): readonly BootStep[] {
  if (serverAddress.startsWith('vsock:')) return [{ name: 'vsock modules', run: loadVsock }]
  if (!serverAddress.startsWith('tcp:')) return []
  return [
    { name: 'network driver', run: loadNetworkDriver },
    { name: 'static address', run: setStaticAddress },
  ]
}

async function loadVsock(context: BootContext): Promise<StepOutcome> {
  const loopback = context.config.vsockAllowLoopback ? ['vsock_loopback'] : []
  return loadModules(context, [
    ...(await virtioBuses(context)),
    'vsock',
    'vmw_vsock_virtio_transport',
    ...loopback,
  ])
}

async function loadNetworkDriver(context: BootContext): Promise<StepOutcome> {
  return loadModules(context, [...(await virtioBuses(context)), 'virtio_net'])
}
