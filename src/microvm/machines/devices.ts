import { Backend, DeviceStatus_Plug, PlugRequest } from '../../gen/microvm/instance/v1/instance.ts'
import { UsageError } from '../command-line/usage-error.mjs'
import { argument, changeInstance, graceMs, type MachineContext, timeoutMs } from './command.ts'
import { readMessage } from './read-message.ts'

export async function plug(context: MachineContext): Promise<undefined> {
  const { backend, device } = await readMessage(context, 'PlugRequest', PlugRequest)
  if (device === undefined)
    throw new UsageError(`${argument(context, 'FILE')}: no device, want {"device": {…}}`)
  const [key, deviceKey] = [argument(context, 'KEY'), argument(context, 'DEVICE')]
  await changeInstance(context, `adding ${deviceKey}`, (calls) =>
    calls.plug({ key, deviceKey, device, backend }, { timeoutMs: timeoutMs(context) }),
  )
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
  const backend = await readMessage(context, 'Backend', Backend)
  const [key, backendKey] = [argument(context, 'KEY'), argument(context, 'BACKEND')]
  await changeInstance(context, `replacing ${backendKey}`, (calls) =>
    calls.replaceBackend({ key, backendKey, backend }, { timeoutMs: timeoutMs(context) }),
  )
}
