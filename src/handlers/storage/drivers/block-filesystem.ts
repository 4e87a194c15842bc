import { AgentError } from '../../../base/errors.ts'
import type { Storage } from '../../../gen/agent.ts'
import type { Tools } from '../../../os/process/tools.ts'

/**
 * Whether the driver options ask for a new file system on the disk (spec E.3.1). Throws INVALID_ARGUMENT for any but
 * ext4.
 */
export function wantsFilesystem({ driverOptions, fstype, mountPoint }: Storage): boolean {
  const wanted = driverOptions.includes('create_filesystem')
  if (wanted && fstype !== 'ext4') {
    const text = `storage ${mountPoint}: create_filesystem makes ext4, not '${fstype}'`
    throw new AgentError('INVALID_ARGUMENT', text)
  }
  return wanted
}

/** Makes an ext4 without journal on a disk, whatever was on it: what needs one does not outlive the guest. */
export async function makeFilesystem(tools: Tools, disk: string, signal: AbortSignal): Promise<void> {
  const options = ['-O', '^has_journal', '-m', '0', '-i', '163840', '-I', '128', '-F']
  const result = await tools.run(['/sbin/mkfs.ext4', ...options, disk], { signal })
  if (result.exitCode !== 0) {
    throw new AgentError(
      'INTERNAL',
      `mkfs.ext4 ${disk}: exit code ${result.exitCode}: ${result.stderr.trim()}`,
    )
  }
}
