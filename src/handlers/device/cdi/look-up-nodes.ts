import { AgentError } from '../../../base/errors.ts'
import type { ResolvedEdits } from '../../../oci/cdi/apply-edits.ts'
import type { CdiNode, ResolvedNode } from '../../../oci/cdi/container-edits.ts'
import type { FileKind } from '../../../os/files/file-status.ts'
import type { Files } from '../../../os/files/files.ts'
import type { ChosenEdits } from './choose-edits.ts'

/** OCI's letters for what a node may be. */
const TYPES: Readonly<Partial<Record<FileKind, string>>> = { block: 'b', character: 'c', fifo: 'p' }

/**
 * Looks at the guest's device nodes for what a CDI specification leaves open: type, numbers and mode. Throws INTERNAL
 * for a node that is not there or is of another type than the specification says.
 */
export async function lookUpNodes(files: Files, { edits, of }: ChosenEdits): Promise<ResolvedEdits> {
  const deviceNodes = await Promise.all(edits.deviceNodes.map((node) => lookUp(files, node, of)))
  return { ...edits, deviceNodes }
}

async function lookUp(files: Files, node: CdiNode, of: string): Promise<ResolvedNode> {
  const { path, hostPath, type: wanted, major, minor, fileMode, permissions, uid, gid } = node
  const rest = { path, permissions, uid, gid }
  if (wanted !== undefined && (major !== undefined || wanted === 'p')) {
    return { ...rest, type: wanted, major: major ?? 0, minor: minor ?? 0, fileMode: fileMode ?? 0 }
  }
  const place = hostPath ?? path
  const status = await files.stat(place)
  const type = status === undefined ? undefined : TYPES[status.kind]
  const what = `CDI device ${of}: deviceNodes: ${place}`
  if (status === undefined || type === undefined) {
    throw new AgentError(
      'INTERNAL',
      `${what} is ${status?.kind ?? 'nothing'} in the guest, not a device node`,
    )
  }
  // OCI knows two letters for a character device.
  if (wanted !== undefined && wanted.replace('u', 'c') !== type) {
    throw new AgentError('INTERNAL', `${what} is of type ${type} in the guest, not ${wanted}`)
  }
  const numbers = major === undefined ? status : { major, minor: minor ?? 0 }
  return { ...rest, type, major: numbers.major, minor: numbers.minor, fileMode: fileMode ?? status.mode }
}
