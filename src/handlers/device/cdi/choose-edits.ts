import { AgentError } from '../../../base/errors.ts'
import type { ContainerEdits } from '../../../oci/cdi/container-edits.ts'
import { type RequestedDevice, textOf } from '../../../oci/cdi/requested-devices.ts'
import type { FolderContents, SpecFile } from './spec-folder.ts'

/** Edits, and the device or file that they belong to. */
export interface ChosenEdits {
  readonly edits: ContainerEdits
  readonly of: string
}

/**
 * Puts a file's common edits before its first device. Returns `missing`, a device whose kind no file describes yet.
 * Throws INTERNAL for a device that its kind lacks or that two files describe.
 */
export function chooseEdits(
  requested: readonly RequestedDevice[],
  { files, problems }: FolderContents,
): { readonly chosen: readonly ChosenEdits[] } | { readonly missing: string } {
  const added = new Set<SpecFile>()
  const chosen: ChosenEdits[] = []
  for (const device of requested) {
    const ofKind = files.filter(({ spec }) => spec.kind === device.kind)
    if (ofKind.length === 0) return { missing: textOf(device) }
    for (const { file, name, edits } of devicesOf(device, ofKind, problems)) {
      if (!added.has(file)) chosen.push({ edits: file.spec.edits, of: file.path })
      added.add(file)
      chosen.push({ edits, of: `${device.kind}=${name}` })
    }
  }
  return { chosen }
}

interface NamedEdits {
  readonly file: SpecFile
  readonly name: string
  readonly edits: ContainerEdits
}

/** A request without a name gets the device `all`, or else every device of the kind. */
function devicesOf(
  device: RequestedDevice,
  ofKind: readonly SpecFile[],
  problems: readonly string[],
): readonly NamedEdits[] {
  const every = ofKind.flatMap((file) =>
    [...file.spec.devices].map(([name, edits]) => ({ file, name, edits })),
  )
  const named = every.filter(({ name }) => name === (device.name ?? 'all'))
  if (named.length > 1) {
    const paths = named.map(({ file }) => file.path).join(' and ')
    throw new AgentError('INTERNAL', `CDI device ${textOf(device)}: described twice, in ${paths}`)
  }
  if (named.length === 1 || (device.name === undefined && every.length > 0)) {
    return named.length === 1 ? named : every
  }
  const known = every.map(({ name }) => name).join(', ')
  const broken = problems.length === 0 ? '' : `; unreadable: ${problems.join('; ')}`
  const text = `CDI device ${textOf(device)} does not exist: ${device.kind} has ${known || 'none'}${broken}`
  throw new AgentError('INTERNAL', text)
}
