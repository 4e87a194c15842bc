import { statSync } from 'node:fs'
import type { VmSpec } from '../spec/spec.ts'

/** The paths of the specification's files that are block devices, which QEMU opens by another driver than files. */
export function blockDevicesOf({ backends }: Pick<VmSpec, 'backends'>): ReadonlySet<string> {
  const paths = Object.values(backends).flatMap((backend) => (backend.kind === 'file' ? [backend.path] : []))
  // QEMU tells of a file that is not there.
  return new Set(paths.filter((path) => statSync(path, { throwIfNoEntry: false })?.isBlockDevice()))
}
