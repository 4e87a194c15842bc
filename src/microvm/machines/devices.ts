import { Backend, DeviceStatus_Plug, PlugRequest } from '../../gen/microvm/instance/v1/instance.ts'
import { UsageError } from '../command-line/usage-error.mjs'
import { argument, changeInstance, graceMs, type MachineContext, timeoutMs } from './command.ts'
import { documentText, isFeatures, readInput, readMessage, readMessageOf } from './read-message.ts'

export async function plug(context: MachineContext): Promise<undefined> {
  const [key, deviceKey] = [argument(context, 'KEY'), argument(context, 'DEVICE')]
  const what = await pluggedOf(context)
  await changeInstance(context, `adding ${deviceKey}`, (calls) =>
    calls.plug({ key, deviceKey, ...what }, { timeoutMs: timeoutMs(context) }),
  )
}

/** A device, or the features of a document. */
async function pluggedOf(context: MachineContext): Promise<Partial<PlugRequest>> {
  const input = await readInput(context, 'FILE')
  if (await isFeatures(input)) return { features: await documentText(input) }
  const { backend, device } = await readMessageOf(input, 'PlugRequest', PlugRequest)
  if (device === undefined) throw new UsageError(`${input.shown}: no device, want {"device": {…}}`)
  return { device, ...(backend && { backend }) }
}

export async function unplug(context: MachineContext): Promise<undefined> {
  const [key, deviceKey, grace] = [argument(context, 'KEY'), argument(context, 'DEVICE'), graceMs(context)]
  let leaving: string[] = []
  await changeInstance(context, `removing ${deviceKey}`, async (calls) => {
    const options = { timeoutMs: timeoutMs(context, grace) }
    const instance = await calls.unplug({ key, deviceKey, graceMs: grace }, options)
    const devices = Object.entries(instance.devices)
    leaving = devices.flatMap(([name, { plug }]) => (plug === DeviceStatus_Plug.LEAVING ? [name] : []))
    return instance
  })
  for (const name of leaving)
    context.reporter.progress(
      `device ${name}: leaving; it goes when the guest lets it go, or with the machine`,
    )
}

export async function replace(context: MachineContext): Promise<undefined> {
  const [key, backendKey] = [argument(context, 'KEY'), argument(context, 'BACKEND')]
  const { values } = context
  const source = values.get('source')
  if (values.has('FILE') === (source !== undefined))
    throw new UsageError('replace: want either FILE or --source, see ./microvm replace --help')
  const by = source === undefined ? { backend: await readMessage(context, 'Backend', Backend) } : { source }
  await changeInstance(context, `replacing ${backendKey}`, (calls) =>
    calls.replaceBackend({ key, backendKey, ...by }, { timeoutMs: timeoutMs(context) }),
  )
}
