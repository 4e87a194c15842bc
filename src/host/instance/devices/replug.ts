import { AgentError } from '../../../base/errors.ts'
import { PlugRequest } from '../../../gen/microvm/instance/v1/instance.ts'
import type { StepRecord } from '../../../gen/microvm/instance/v1/records.ts'
import type { MachineInstance } from '../instance.ts'
import { plug, specificationOf, unplug } from './plug.ts'

/** The step `replug` of a device that leaves for a while. */
function replugStep({ key, recorded, record }: MachineInstance, deviceKey: string): StepRecord {
  const { devices = {}, backends = {} } = record.specification ?? {}
  const device = devices[deviceKey]
  const backend = backends[device?.backend ?? '']
  const request = PlugRequest.encode(PlugRequest.fromPartial({ key, deviceKey, device, backend })).finish()
  return recorded.step('replug', [deviceKey, Buffer.from(request).toString('base64')])
}

function plugRequestOf({ words: [, text = ''] }: StepRecord): PlugRequest {
  return PlugRequest.decode(Buffer.from(text, 'base64'))
}

/**
 * Takes a device from the machine, which gets it back by {@link settleReplugs}, or when it stops. Rejects with DEADLINE_EXCEEDED when
 * the guest keeps it for longer than `graceMs`. To be called in a change.
 */
export async function unplugForAWhile(
  instance: MachineInstance,
  deviceKey: string,
  graceMs: number,
): Promise<void> {
  const step = replugStep(instance, deviceKey)
  await instance.recorded.commit({
    add: [step],
    kind: 'device',
    text: `device ${deviceKey} leaves for a while`,
  })
  await unplug(instance, { key: instance.key, deviceKey, graceMs })
  if (!instance.record.leaving.includes(deviceKey)) return
  const text = `device ${deviceKey}: the guest did not let it go within ${graceMs} ms`
  throw new AgentError('DEADLINE_EXCEEDED', text)
}

/** Plugs in again what has left for a while. A device that is still leaving comes back once it has gone. To be called in a change. */
export async function settleReplugs(instance: MachineInstance): Promise<void> {
  const { recorded } = instance
  for (const step of recorded.steps.filter((each) => each.step === 'replug')) {
    const [key = ''] = step.words
    if (recorded.record.leaving.includes(key)) continue
    if (specificationOf(instance).devices[key] === undefined)
      await plug(instance, plugRequestOf(step), instance.plugParts)
    await recorded.note({ drop: [step], kind: 'device', text: `device ${key} is back` })
  }
}
