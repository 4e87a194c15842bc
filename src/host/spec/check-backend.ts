import { ADDRESS_BITS, familyOf, type IpFamily, parseIp } from '../../base/ip-address.ts'
import { checkNumber } from './check-board.ts'
import { checkPath } from './check-path.ts'
import { BACKEND_FIELDS, jsonName, pathOf, refuse, shown } from './component-path.ts'
import { MAX_SOCKET_PATH_BYTES } from './limits.ts'
import type { Backend, FileBackend, UserNetworkBackend, UserSubnet } from './spec.ts'

/** Throws INVALID_ARGUMENT that names the field for which this host cannot have the backend. */
export function checkBackend(key: string, backend: Backend): void {
  const at = (field: string) => pathOf('backends', key, BACKEND_FIELDS[backend.kind], field)
  switch (backend.kind) {
    case 'file':
      checkPath(at('path'), backend.path)
      checkEncryption(at('encryption'), backend)
      checkHost(at('host'), backend)
      break
    case 'content':
    case 'folder':
    case 'virtiofsd':
      checkPath(at('path'), backend.path)
      break
    case 'vhost-user':
      checkPath(at('socket'), backend.socket, MAX_SOCKET_PATH_BYTES)
      break
    case 'tap':
      checkInterface(at('interface_name'), backend.interfaceName)
      if (backend.bridge !== undefined) checkInterface(at('bridge'), backend.bridge)
      break
    case 'user-network':
      checkUserNetwork(at, backend)
      break
    case 'passt':
    case 'vhost-vsock':
    case 'vsock-daemon':
    case 'console':
      break
    default:
      backend satisfies never
  }
}

/** As src/host/tls has it, which may not be imported here. */
const HOST_ID = /^[a-z0-9](?:[a-z0-9.-]{0,61}[a-z0-9])?$/

function checkHost(at: string, { access, host }: FileBackend): void {
  if (host === undefined) return
  if (!HOST_ID.test(host)) refuse(at, `${shown(host)}: want the id of a host`)
  if (access !== 'read-write') refuse(at, 'of a disk with READ_WRITE only')
}

function checkEncryption(at: string, { access, encryption, format }: FileBackend): void {
  if (encryption === undefined) return
  if (access === 'scratch') refuse(at, 'not possible with access SCRATCH')
  if (format === 'qcow2') refuse(at, 'of a raw file only')
}

/** `dev_valid_name` of Linux; `%` would have the kernel choose a number. */
export function checkInterface(at: string, name: string): void {
  if (/^[!-~]{1,15}$/.test(name) && !/^\.\.?$|[/:%]/.test(name)) return
  refuse(at, `${shown(name)}: invalid, want 1 to 15 printable characters without "/", ":" and "%"`)
}

function checkUserNetwork(at: (field: string) => string, backend: UserNetworkBackend): void {
  for (const [index, { hostPort, guestPort }] of backend.forwards.entries()) {
    checkNumber(`${at('forwards')}[${index}].host_port`, hostPort, 1, 65_535)
    checkNumber(`${at('forwards')}[${index}].guest_port`, guestPort, 1, 65_535)
  }
  const families = new Set<IpFamily>()
  for (const [index, subnet] of (backend.subnets ?? []).entries()) {
    const path = `${at('subnets')}[${index}]`
    if (families.has(subnet.family)) refuse(path, `${subnet.family}: given twice`)
    families.add(subnet.family)
    checkSubnet(path, subnet)
  }
}

function checkSubnet(path: string, subnet: UserSubnet): void {
  for (const field of ['network', 'host', 'guest', 'nameServer'] as const) {
    const address = parseIp(subnet[field])
    if (address === undefined || familyOf(address) !== subnet.family) {
      refuse(`${path}.${jsonName(field)}`, `${shown(subnet[field])}: want an address of ${subnet.family}`)
    }
  }
  checkNumber(`${path}.prefix_length`, subnet.prefixLength, 1, ADDRESS_BITS[subnet.family])
}
