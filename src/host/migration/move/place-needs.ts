import { normalize } from 'node:path'
import type { Needs } from '../../../gen/microvm/controller/v1/controller.ts'
import { File_Access, type Specification } from '../../../gen/microvm/instance/v1/instance.ts'
import type { HostFacts } from '../manifest.ts'

/** A controller takes no more of a kind. */
const MOST = 64

/** What a host has to have beside memory and processor: a controller chooses one by it. `specification` has no leased volumes. */
export function placeNeeds(
  { backends }: Pick<Specification, 'backends'>,
  { qemu }: Pick<HostFacts, 'qemu'>,
): Pick<Needs, 'networks' | 'qemuVersion' | 'sharedPaths'> {
  const all = Object.values(backends)
  const bridges = all.flatMap(({ tap }) => (tap === undefined || tap.bridge === '' ? [] : [tap.bridge]))
  const written = all.flatMap(({ file }) =>
    file?.access === File_Access.READ_WRITE ? [normalize(file.path)] : [],
  )
  return {
    networks: [...new Set(bridges)].slice(0, MOST),
    qemuVersion: /^QEMU (\d+(?:\.\d+){1,3})/.exec(qemu)?.[1] ?? '',
    sharedPaths: written.slice(0, MOST),
  }
}
