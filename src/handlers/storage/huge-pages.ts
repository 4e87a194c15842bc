import { AgentError } from '../../base/errors.ts'
import type { UndoList } from '../../base/undo.ts'
import type { Files } from '../../os/os.ts'

/**
 * Has the kernel set aside the huge pages that the options `pagesize=` and `size=` (bytes) ask for (spec E.3.3).
 * Throws INVALID_ARGUMENT without them, INTERNAL when there is too little memory in one piece; `undo` gets the way back.
 */
export async function reserveHugePages(
  files: Files,
  options: readonly string[],
  undo: UndoList,
): Promise<void> {
  const pageSize = bytesOf(options, 'pagesize')
  const size = bytesOf(options, 'size')
  if (pageSize === undefined || size === undefined) {
    throw new AgentError('INVALID_ARGUMENT', 'no pagesize/size options found')
  }
  const wanted = size / pageSize
  const path = `/sys/kernel/mm/hugepages/hugepages-${pageSize / 1024n}kB/nr_hugepages`
  if ((await files.stat(path)) === undefined) {
    throw new AgentError('INVALID_ARGUMENT', `there are no huge pages of size ${pageSize}`)
  }
  const before = await files.readText(path)
  undo.add('give back huge pages', () => files.write(path, before.trim()))
  await files.write(path, String(wanted))
  // The kernel takes any number and sets aside what it can.
  const allocated = BigInt((await files.readText(path)).trim())
  if (allocated < wanted) {
    const message = `Only allocated ${allocated} of ${wanted} hugepages of size ${pageSize}`
    throw new AgentError('INTERNAL', message)
  }
}

function bytesOf(options: readonly string[], name: string): bigint | undefined {
  const value = options.findLast((option) => option.startsWith(`${name}=`))?.slice(name.length + 1)
  if (value === undefined) return undefined
  if (!/^\d+$/.test(value) || BigInt(value) === 0n) {
    throw new AgentError('INVALID_ARGUMENT', `storage option ${name}=${value}: not a number of bytes`)
  }
  return BigInt(value)
}
