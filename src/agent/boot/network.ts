import { AgentError } from '../../base/errors.ts'
import { broadcastOf, parseIp, prefixLengthOfMask } from '../../base/ip-address.ts'
import type { BootContext, StepOutcome } from './step.ts'

/** Sets `lo` up; the kernel then gives it its addresses. */
export async function setLoopbackUp({ os }: BootContext): Promise<StepOutcome> {
  const loopback = os.network.links().find((link) => link.loopback)
  if (loopback === undefined || loopback.up) return 'already'
  os.network.setLink(loopback.index, { up: true })
  return 'done'
}

/**
 * Gives an interface the address of the kernel parameter `ip=CLIENT:SERVER:GATEWAY:NETMASK:HOSTNAME:DEVICE:…`
 * (nfsroot.rst). The kernel itself does that only with a built-in network driver, which distribution kernels lack.
 * Throws INVALID_ARGUMENT when address, mask or device is missing, and INTERNAL when no such device exists.
 */
export async function setStaticAddress({ os, config }: BootContext): Promise<StepOutcome> {
  if (config.kernelIp === '') return 'already'
  const [address = '', , , mask = '', , device = ''] = config.kernelIp.split(':')
  const bytes = parseIp(address)
  const prefixLength = prefixLengthOfMask(mask)
  if (bytes === undefined || prefixLength === undefined || device === '') {
    throw new AgentError('INVALID_ARGUMENT', `ip=${config.kernelIp}: address, mask or device is missing`)
  }
  const link = os.network.links().find(({ name }) => name === device)
  if (link === undefined) throw new AgentError('INTERNAL', `ip=${config.kernelIp}: no device ${device}`)
  os.network.replaceAddress({
    linkIndex: link.index,
    family: 'ipv4',
    address,
    prefixLength,
    broadcast: broadcastOf(bytes, prefixLength),
    scope: 0,
    flags: 0,
  })
  os.network.setLink(link.index, { up: true })
  return 'done'
}
