import { AgentError } from '../../../base/errors.ts'
import type { ResolvedEdits } from '../../../oci/cdi/apply-edits.ts'
import type { CdiNode, ResolvedNode } from '../../../oci/cdi/container-edits.ts'
import type { FileKind } from '../../../os/files/file-status.ts'
import type { Files } from '../../../os/files/files.ts'
import type { ChosenEdits } from './choose-edits.ts'

/** The OCI letters of node types. */
const TYPES: Readonly<Partial<Record<FileKind, string>>> = { block: 'b', character: 'c', fifo: 'p' }

/** Adds type, numbers and mode of the guest's nodes. Throws INTERNAL for a missing node or one of another type. */
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
  const guestPath = hostPath ?? path
  const status = await files.stat(guestPath)
  const type = status === undefined ? undefined : TYPES[status.kind]
  const what = `CDI device ${of}: deviceNodes: ${guestPath}`
  if (status === undefined || type === undefined) {
    throw new AgentError(
      'INTERNAL',
      `${what}: ${status === undefined ? 'no such node' : `is a ${status.kind}`} in the guest, want a device node`,
    )
  }
  // OCI has two letters for a character device, c and u.
  if (wanted !== undefined && wanted.replace('u', 'c') !== type) {
    throw new AgentError('INTERNAL', `${what}: type ${type} in the guest, want ${wanted}`)
  }
  const numbers = major === undefined ? status : { major, minor: minor ?? 0 }
  return { ...rest, type, major: numbers.major, minor: numbers.minor, fileMode: fileMode ?? status.mode }
}
