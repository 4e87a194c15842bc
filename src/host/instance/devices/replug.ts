import { setTimeout as delay } from 'node:timers/promises'
import { AgentError, messageOf } from '../../../base/errors.ts'
import { PlugRequest } from '../../../gen/microvm/instance/v1/instance.ts'
import type { StepRecord } from '../../../gen/microvm/instance/v1/records.ts'
import { attachStreams } from '../ask-agent.ts'
import { placeOfVsock } from '../documents/document-record.ts'
import type { MachineInstance } from '../instance.ts'
import { plugBack, settlePlugs, specificationOf, unplug } from './plug.ts'

/** The step `replug` of a device that leaves for a while. */
function replugStep({ key, recorded, record }: MachineInstance, deviceKey: string): StepRecord {
  const { devices = {}, backends = {} } = record.specification ?? {}
  const device = devices[deviceKey]
  const backend = backends[device?.backend ?? '']
  const features = placeOfVsock(record, deviceKey)
  const whole = PlugRequest.fromPartial({ key, deviceKey, device, backend, ...(features && { features }) })
  const request = PlugRequest.encode(whole).finish()
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

/** So long after a plug that has failed it is tried again, then twice as long each time. */
const RETRY_MS = 1000
const LONGEST_RETRY_MS = 60_000

/**
 * Plugs in again what has left for a while, and lets its streams go on. A device that is still leaving comes back once it has gone,
 * and one that cannot be plugged in is tried again later. To be called in a change.
 */
export async function settleReplugs(instance: MachineInstance, retryMs = RETRY_MS): Promise<void> {
  const { context, recorded } = instance
  const steps = recorded.steps.filter(({ step }) => step === 'replug')
  if (steps.length === 0) return
  try {
    // The daemon may have died while it plugged it in, or the guest may have let it go since.
    await settlePlugs(instance)
    for (const step of steps) {
      const [key = ''] = step.words
      if (recorded.record.leaving.includes(key)) continue
      if (specificationOf(instance).devices[key] === undefined)
        await plugBack(instance, plugRequestOf(step), instance.plugParts)
      await recorded.note({ drop: [step], kind: 'device', text: `device ${key} is back` })
      void attachStreams(instance).catch((error) =>
        context.log.debug('streams not attached', { instance: instance.key, error: messageOf(error) }),
      )
    }
  } catch (error) {
    context.log.warn('device not plugged in again', { instance: instance.key, error: messageOf(error) })
    retryLater(instance, retryMs)
  }
}

/** While the machine is the same one. */
function retryLater(instance: MachineInstance, retryMs: number): void {
  const { machine } = instance.context
  delay(retryMs, undefined, { signal: instance.ending, ref: false }).then(
    () => {
      if (machine === undefined || instance.context.machine !== machine) return
      const next = Math.min(2 * retryMs, LONGEST_RETRY_MS)
      instance.follow('replug', () => settleReplugs(instance, next))
    },
    () => {},
  )
}
