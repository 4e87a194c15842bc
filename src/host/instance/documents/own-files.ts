import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { VMMetadata } from '../../../gen/vm.ts'
import type { Machine, Scalar } from '../../machine/machine.ts'
import type { Backends } from '../../qemu/machine/as-spec.ts'
import { fileError } from '../snapshots/overlay-file.ts'

/** The backends that are files of the instance itself. */
export function ownBackends({ backends }: Machine, folder: string): Backends {
  return Object.fromEntries(
    Object.entries(backends).flatMap(([key, { kind }]) =>
      kind === 'metadata' ? [[key, { kind: 'content', path: metadataPath(folder, key) }] as const] : [],
    ),
  )
}

/** Makes the files in an instance's folder that its machine wants. */
export async function makeOwnFiles(machine: Machine, folder: string): Promise<void> {
  for (const [key, { kind, options }] of Object.entries(machine.backends)) {
    if (kind !== 'metadata') continue
    const path = metadataPath(folder, key)
    await writeFile(path, metadata(options), { mode: 0o600 }).catch((error) => {
      throw fileError(path, error)
    })
  }
}

/** What the guest is told by its metadata; undefined when it has none. */
export function metadataOf({ backends }: Machine): Uint8Array | undefined {
  const own = Object.values(backends).find(({ kind }) => kind === 'metadata')
  return own && metadata(own.options)
}

function metadataPath(folder: string, key: string): string {
  return join(folder, `${key}.pb`)
}

function metadata(options: Readonly<Record<string, Scalar>>): Uint8Array {
  const address = (ip: Scalar | undefined, peer: Scalar | undefined) =>
    ip === undefined ? undefined : { ip: plain(ip), peerIp: plain(peer ?? '') }
  const { hostName = '', v4, v4Peer, v6, v6Peer } = options
  const networkConfig = { v4: address(v4, v4Peer), v6: address(v6, v6Peer) }
  return VMMetadata.encode({ name: String(hostName), networkConfig }).finish()
}

/** The link is one of two ends, and has no prefix. */
function plain(address: Scalar): string {
  return String(address).replace(/\/.*/, '')
}
