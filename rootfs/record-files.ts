import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describeTree, guestTree } from './guest-tree.ts'
import { ensureKernel } from './kernel.ts'

/** The recorded list of what is in the guest's root. */
export const fileList = join(import.meta.dirname, 'files.txt')

/** What the list would be if it were recorded now, for the default kernel. */
export async function currentFileList(progress: (line: string) => void): Promise<string> {
  const kernel = await ensureKernel('bookworm', progress)
  const { base, agent } = await guestTree(kernel, progress)
  return describeTree([...base, ...agent], kernel)
}

/** `node rootfs/record-files.ts`: records what the image holds now. */
if (import.meta.main)
  writeFileSync(fileList, await currentFileList((line) => process.stderr.write(`${line}\n`)))
