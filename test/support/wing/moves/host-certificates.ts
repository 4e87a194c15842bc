import { join } from 'node:path'
import type { HostSettings } from '../../../../src/host/service/hosts/host-settings.ts'
import { temporaryFolder } from '../../temporary-folder.ts'
import { type Authority, signCertificates } from './sign-certificates.ts'

export function hostAuthority(name: string, hosts: readonly string[]): Authority {
  return signCertificates(temporaryFolder(), name, hosts)
}

let ports = 0

/** Settings of a host with a certificate of the authority, on loopback and a port of this process. */
export function hostOf({ ca, folder }: Authority, id: string): HostSettings {
  // Below those that the kernel gives to others while no daemon of the host runs.
  const listen = { host: '127.0.0.1', port: 20_000 + ((process.pid * 8 + ports++ * 7) % 12_000) }
  const files = { ca, cert: join(folder, `${id}.pem`), key: join(folder, `${id}.key`) }
  return {
    id,
    listen,
    advertise: listen,
    controllers: [],
    networks: [],
    sharedFolders: [],
    volumes: {},
    ...files,
  }
}
