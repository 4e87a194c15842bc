import { messageOf } from '../../base/errors.ts'
import { configureNetwork } from '../../handlers/network/vm-metadata/configure-network.ts'
import { type FoundMetadata, readVmMetadata } from '../../handlers/network/vm-metadata/read-vm-metadata.ts'
import { setHostname } from './hostname.ts'
import { FIRMWARE_ROOT } from './modules.ts'
import { type BootContext, outcomeOf, type StepOutcome } from './step.ts'

/**
 * Gives the guest its name, and its addresses if the host put any into the firmware (docs/vm-metadata.md). A guest without
 * them can still be reached, so whatever goes wrong is a warning.
 */
export async function takeIdentity(context: BootContext): Promise<StepOutcome> {
  const metadata = await readMetadata(context)
  return outcomeOf([
    await setHostname(context, metadata?.metadata.name),
    await applyNetwork(context, metadata),
  ])
}

async function readMetadata({ config, log, os }: BootContext): Promise<FoundMetadata | undefined> {
  if (config.metadata === 'off') return undefined
  try {
    return await readVmMetadata({ files: os.files, root: FIRMWARE_ROOT }, log)
  } catch (error) {
    log.warn('VM metadata not read', { error: messageOf(error) })
    return undefined
  }
}

async function applyNetwork(
  { config, log, os }: BootContext,
  metadata: FoundMetadata | undefined,
): Promise<StepOutcome> {
  if (metadata === undefined) return 'already'
  const { clock, files, network, uevents } = os
  const settings = { interface: config.metadataInterface, timeoutMs: config.hotplugTimeoutMs }
  try {
    const changed = await configureNetwork({ clock, files, network, uevents, log, ...settings }, metadata)
    return changed ? 'done' : 'already'
  } catch (error) {
    log.warn('VM metadata not applied to the network', { item: metadata.item, error: messageOf(error) })
    return 'already'
  }
}
