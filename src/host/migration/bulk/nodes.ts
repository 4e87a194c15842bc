import { AgentError } from '../../../base/errors.ts'
import type { BulkDisk, BulkQemu } from './bulk.ts'

/** Throws FAILED_PRECONDITION for a disk that QEMU has not, or has in another size. */
export async function checkSizes({ qmp, signal }: BulkQemu, disks: readonly BulkDisk[]): Promise<void> {
  if (disks.length === 0) return
  const nodes = await qmp.execute('query-named-block-nodes', { flat: true }, signal)
  for (const { key, node, sizeBytes } of disks) {
    const found = nodes.find((each) => each['node-name'] === node)
    if (found === undefined) throw new AgentError('FAILED_PRECONDITION', `disk ${key}: no block node ${node}`)
    const present = found.image['virtual-size']
    if (present !== sizeBytes)
      throw new AgentError('FAILED_PRECONDITION', `disk ${key}: has ${present} bytes, want ${sizeBytes}`)
  }
}
