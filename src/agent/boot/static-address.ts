import { AgentError } from '../../base/errors.ts'
import type { BootContext, StepOutcome } from './step.ts'

/**
 * Gives an interface the address of the kernel parameter `ip=CLIENT:SERVER:GATEWAY:NETMASK:HOSTNAME:DEVICE:…`
 * (nfsroot.rst). The kernel does that itself only with a network driver that is built in, which distribution kernels do
 * not have. Throws INVALID_ARGUMENT unless it names address, mask and device.
 */
export async function setStaticAddress({ os, config }: BootContext): Promise<StepOutcome> {
  if (config.kernelIp === '') return 'already'
  const [address = '', , , mask = '', , device = ''] = config.kernelIp.split(':')
  if (address === '' || mask === '' || device === '') {
    throw new AgentError('INVALID_ARGUMENT', `ip=${config.kernelIp}: address, mask or device is missing`)
  }
  os.network.setInterfaceAddress(device, address, mask)
  os.network.setInterfaceUp(device)
  return 'done'
}
