import { neverAborted } from '../../base/abort.ts'
import { messageOf } from '../../base/errors.ts'
import type { StepRecord } from '../../gen/microvm/instance/v1/records.ts'
import { specificationOf } from './devices/plug.ts'
import { isReplaceable, restoreNetwork } from './devices/replace-network.ts'
import { backendsBehind } from './documents/plug-features.ts'
import type { MachineInstance } from './instance.ts'
import type { Machine } from './machine/machine.ts'

/** How often the network of one card is started again in the life of a machine. */
const RESTARTS = 10

/** Tells when a daemon of the machine has ended, and starts passt again behind a card that can be given another network. */
export function watchDaemons(instance: MachineInstance, machine: Machine): void {
  const { context, recorded } = instance
  const restarts = new Map<string, number>()
  const onEnd = async (step: StepRecord) => {
    const [key = '', name, socket = ''] = step.words
    // Its device may have been unplugged.
    if (context.machine !== machine || !recorded.steps.includes(step)) return
    // It may have ended for its device to leave.
    if (backendsBehind(recorded.record, recorded.record.leaving).includes(key)) return
    // Another serves in its place.
    if (step.step === 'volume' && context.volumes?.serves(socket)) return
    const children = await machine.holder.children()
    if (children.some((child) => child.name === name && child.exit === undefined)) return
    await recorded.commit({ kind: 'backend', text: `the daemon of backend ${key} has ended` })
    const count = restarts.get(key) ?? 0
    restarts.set(key, count + 1)
    if (count >= RESTARTS || !(await startAgain(instance, key))) return
    await recorded.commit({ kind: 'backend', text: `the daemon of backend ${key} was started again` })
  }
  const stopListening = machine.holder.onExit(({ name }) => {
    const step = recorded.steps.find(
      ({ step, words }) => ['daemon', 'volume'].includes(step) && words[1] === name,
    )
    if (step === undefined || context.machine !== machine) return
    const handled = instance.change(() => onEnd(step), neverAborted)
    handled.catch((error) => {
      if (context.machine === machine)
        context.log.warn('daemon not started again', { name, error: messageOf(error) })
    })
  })
  void machine.gone.then(stopListening)
}

/** Returns false when QEMU cannot connect again. */
async function startAgain(instance: MachineInstance, key: string): Promise<boolean> {
  const specification = specificationOf(instance)
  if (specification.backends[key]?.passt === undefined || !isReplaceable(key, specification)) return false
  await restoreNetwork(instance, key, specification)
  return true
}
