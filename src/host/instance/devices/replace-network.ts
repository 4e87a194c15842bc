import { AgentError } from '../../../base/errors.ts'
import type { Specification, Tap } from '../../../gen/microvm/instance/v1/instance.ts'
import { replaceableParts } from '../../qemu/netdev-parts.ts'
import { plugCommand, type QmpCommand, removeCommand } from '../../qemu/parts.ts'
import { specFromProto } from '../../spec/from-proto.ts'
import type { MachineInstance } from '../instance.ts'
import { openerOf, partsHostOf } from './parts-host-of.ts'
import type { RunningOpener } from './running-opener.ts'

/** Makes a tap a port of another bridge. */
export async function connectTap(
  { context }: MachineInstance,
  { interfaceName, bridge }: Tap,
): Promise<string> {
  await context.links.connect(interfaceName, bridge, [])
  return ''
}

/**
 * Replaces the network behind a card that is at a port of a hub, by a tap. When that fails, the network is as before. What
 * an earlier daemon has left half done is made whole.
 */
export async function replaceNetwork(
  instance: MachineInstance,
  key: string,
  { before, after }: { readonly before: Specification; readonly after: Specification },
): Promise<string> {
  const { qmp } = instance.machine()
  const run = async ({ opener, add }: NetworkCommands) => {
    await opener?.open(qmp, instance.ending)
    for (const command of add) await qmp.command(command, instance.ending)
  }
  const [old, next] = [commandsOf(instance, before, key), commandsOf(instance, after, key)]
  for (const command of old.remove) await qmp.command(command, instance.ending).catch(() => {})
  try {
    await run(next)
    const { tap } = after.backends[key] ?? {}
    return tap === undefined ? '' : await connectTap(instance, tap)
  } catch (error) {
    for (const command of next.remove) await qmp.command(command, instance.ending).catch(() => {})
    await run(old).catch(() => {})
    const { tap } = before.backends[key] ?? {}
    if (tap !== undefined) await connectTap(instance, tap).catch(() => {})
    throw error
  }
}

interface NetworkCommands {
  readonly opener: RunningOpener | undefined
  readonly add: readonly QmpCommand[]
  readonly remove: readonly QmpCommand[]
}

function commandsOf(instance: MachineInstance, specification: Specification, key: string): NetworkCommands {
  const spec = specFromProto(specification)
  const device = Object.values(spec.devices).find((each) => each.kind === 'nic' && each.backend === key)
  if (device?.kind !== 'nic') throw new AgentError('INTERNAL', `backend ${key}: no card has it`)
  const opener = openerOf(instance)
  const parts = replaceableParts(spec, device, partsHostOf(instance, spec, opener))
  return {
    opener,
    add: parts.map(plugCommand),
    remove: parts.toReversed().flatMap((part) => removeCommand(part) ?? []),
  }
}
