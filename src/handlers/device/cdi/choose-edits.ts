import { AgentError } from '../../../base/errors.ts'
import { type AskedDevice, textOf } from '../../../oci/cdi/asked-for.ts'
import type { ContainerEdits } from '../../../oci/cdi/container-edits.ts'
import type { FolderContents, SpecFile } from './spec-folder.ts'

/** Edits, and the device or file they are for. */
export interface ChosenEdits {
  readonly edits: ContainerEdits
  readonly of: string
}

/**
 * The edits for all devices asked for, in their order: those of a file that hold for each of its devices come once,
 * before its first device. `missing` is a kind that no file describes: its file may still come. Throws INTERNAL for a
 * device that its kind does not have, and for one that two files describe.
 */
export function chooseEdits(
  asked: readonly AskedDevice[],
  { files, problems }: FolderContents,
): { readonly chosen: readonly ChosenEdits[] } | { readonly missing: string } {
  const begun = new Set<SpecFile>()
  const chosen: ChosenEdits[] = []
  for (const device of asked) {
    const ofKind = files.filter(({ spec }) => spec.kind === device.kind)
    if (ofKind.length === 0) return { missing: textOf(device) }
    for (const { file, name, edits } of devicesOf(device, ofKind, problems)) {
      if (!begun.has(file)) chosen.push({ edits: file.spec.edits, of: file.path })
      begun.add(file)
      chosen.push({ edits, of: `${device.kind}=${name}` })
    }
  }
  return { chosen }
}

interface Found {
  readonly file: SpecFile
  readonly name: string
  readonly edits: ContainerEdits
}

/** One device, or each of the kind; the kind may have one that is called `all` and stands for them. */
function devicesOf(
  device: AskedDevice,
  ofKind: readonly SpecFile[],
  problems: readonly string[],
): readonly Found[] {
  const every = ofKind.flatMap((file) =>
    [...file.spec.devices].map(([name, edits]) => ({ file, name, edits })),
  )
  const named = every.filter(({ name }) => name === (device.name ?? 'all'))
  if (named.length > 1) {
    const paths = named.map(({ file }) => file.path).join(' and ')
    throw new AgentError('INTERNAL', `CDI device ${textOf(device)} is in ${paths}`)
  }
  if (named.length === 1 || (device.name === undefined && every.length > 0)) {
    return named.length === 1 ? named : every
  }
  const known = every.map(({ name }) => name).join(', ')
  const broken = problems.length === 0 ? '' : `; not read: ${problems.join('; ')}`
  const text = `CDI device ${textOf(device)} does not exist: ${device.kind} has ${known || 'none'}${broken}`
  throw new AgentError('INTERNAL', text)
}
