import { messageOf } from '../../base/errors.ts'
import { configureNetwork } from '../../handlers/network/vm-metadata/configure-network.ts'
import { type FoundMetadata, readVmMetadata } from '../../handlers/network/vm-metadata/read-vm-metadata.ts'
import type { Files } from '../../os/files/files.ts'
import { FIRMWARE_ROOT } from './modules.ts'
import { type BootContext, outcomeOf, type StepOutcome } from './step.ts'

/** One label of a host name (RFC 1123): at most 63 letters, digits and inner hyphens. */
const LABEL = /^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/i

/** Sets host name and addresses (docs/network.md). A guest without them is reachable, so failures are warnings. */
export async function takeIdentity(context: BootContext): Promise<StepOutcome> {
  const found = await readMetadata(context)
  const named = await setHostname(context, hostNameIn(found, context))
  return outcomeOf([named, found === undefined ? 'already' : await applyNetwork(context, found)])
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

function hostNameIn(found: FoundMetadata | undefined, { log }: BootContext): string | undefined {
  const name = found?.metadata.name ?? ''
  if (LABEL.test(name)) return name
  if (name !== '') log.warn('name in the VM metadata is not a host name', { name })
  return undefined
}

async function applyNetwork(
  { config, log, networkRecord: record, os }: BootContext,
  found: FoundMetadata,
): Promise<StepOutcome> {
  const { clock, files, network, uevents } = os
  const settings = { interface: config.metadataInterface, timeoutMs: config.hotplugTimeoutMs }
  try {
    const changed = await configureNetwork(
      { clock, files, network, uevents, log, record, ...settings },
      found,
    )
    return changed ? 'done' : 'already'
  } catch (error) {
    log.warn('VM metadata not applied to the network', { item: found.item, error: messageOf(error) })
    return 'already'
  }
}

const DEFAULT_HOSTNAME = 'localhost'

/** `given` comes from the VM metadata. A failure is only logged, because the guest works without a host name. */
export async function setHostname(context: BootContext, given: string | undefined): Promise<StepOutcome> {
  const { os, log, networkRecord } = context
  try {
    const wanted = given ?? (await configuredHostname(os.files))
    const current = (await os.files.readText('/proc/sys/kernel/hostname')).trim()
    if (current !== wanted) os.system.setHostname(wanted)
    if (given !== undefined) {
      networkRecord.note('metadata', [{ kind: 'hostname', subject: 'hostname', value: given }])
    }
    return current === wanted ? 'already' : 'done'
  } catch (error) {
    log.warn('hostname not set', { error: messageOf(error) })
    return 'already'
  }
}

/** The first word of /etc/hostname, or `localhost`. */
async function configuredHostname(files: Files): Promise<string> {
  if ((await files.stat('/etc/hostname')) === undefined) return DEFAULT_HOSTNAME
  const [first = ''] = (await files.readText('/etc/hostname')).trim().split(/\s+/)
  return first === '' ? DEFAULT_HOSTNAME : first
}
