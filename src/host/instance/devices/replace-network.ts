import { AgentError } from '../../../base/errors.ts'
import type { Specification } from '../../../gen/microvm/instance/v1/instance.ts'
import type { InstanceRecord } from '../../../gen/microvm/instance/v1/records.ts'
import { replaceableParts } from '../../qemu/netdev-parts.ts'
import { plugCommand, type QmpCommand, removeCommand } from '../../qemu/parts.ts'
import { addPart } from '../../qemu/qmp/add-part.ts'
import { specFromProto } from '../../spec/from-proto.ts'
import { answer } from '../holder/ask-holder.ts'
import type { MachineInstance } from '../instance.ts'
import { STEPS } from '../machine/steps.ts'
import { openerOf, partsHostOf } from './parts-host-of.ts'
import { connectTap, providersOf } from './provider-steps.ts'
import type { RunningOpener } from './running-opener.ts'

interface ReplacedNetwork {
  readonly before: Specification
  readonly after: Specification
  /** What the record has once it is replaced. */
  readonly set: Partial<InstanceRecord>
}

/**
 * Replaces the network behind a card that is at a port of a hub, by a tap or by passt, whose daemon runs already. When that
 * fails, the network is as before. What an earlier daemon has left half done is made whole.
 */
export async function replaceNetwork(
  instance: MachineInstance,
  key: string,
  { before, after, set }: ReplacedNetwork,
): Promise<void> {
  const { qmp } = instance.machine()
  const run = async ({ opener, add }: NetworkCommands) => {
    await opener?.open(qmp, instance.ending)
    for (const command of add) await addPart(qmp, command, instance.ending)
  }
  const [old, next] = [commandsOf(instance, before, key), commandsOf(instance, after, key)]
  for (const command of old.remove) await qmp.command(command, instance.ending).catch(() => {})
  try {
    await run(next)
    await connectTap(instance, set, key)
  } catch (error) {
    for (const command of next.remove) await qmp.command(command, instance.ending).catch(() => {})
    await next.opener?.discard(qmp, instance.ending).catch(() => {})
    await run(old).catch(() => {})
    await connectTap(instance, {}, key).catch(() => {})
    throw error
  }
}

/**
 * Makes the network behind a card again what the specification says, also when its daemon has ended. To be called in a
 * change.
 */
export async function restoreNetwork(
  instance: MachineInstance,
  key: string,
  specification: Specification,
): Promise<void> {
  const { context, record } = instance
  if (!isReplaceable(key, specification)) return await connectTap(instance, {}, key)
  const { daemons } = await providersOf(instance, {}, key)
  const children = context.holder === undefined ? [] : await answer(context, context.holder.children())
  for (const daemon of daemons) {
    const child = children.findLast(({ name }) => name === daemon.words[1])
    if (child !== undefined && child.exit === undefined) continue
    await STEPS.daemon.undo(context, daemon.words)
    await STEPS.daemon.make(context, daemon, record)
  }
  await replaceNetwork(instance, key, { before: specification, after: specification, set: {} })
}

export function isReplaceable(key: string, { devices }: Specification): boolean {
  return Object.values(devices).some(({ backend, nic }) => backend === key && nic?.replaceable === true)
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
  const parts = replaceableParts(spec, device, partsHostOf(instance, spec, { opener }))
  return {
    opener,
    add: parts.map(plugCommand),
    remove: parts.toReversed().flatMap((part) => removeCommand(part) ?? []),
  }
}
