import { join } from 'node:path'
import { cached } from '../../../../src/build/cache.ts'
import { tool } from '../../../../src/build/tool.ts'

/** Where the program of pod-work.c is in a container. */
export const POD_WORK = '/bin/pod-work'

/** Puts the program into the ext4 image of a container's root. */
export async function addPodWork(image: string): Promise<void> {
  const source = join(import.meta.dirname, 'pod-work.c')
  const folder = await cached('pod-work', { files: [source], values: [] }, async (target) => {
    const words = ['-static', '-O2', '-Wall', '-Werror', '-o', join(target, 'pod-work'), source]
    await tool('gcc', words, { debianPackage: 'gcc' })
  })
  const write = `write ${join(folder, 'pod-work')} ${POD_WORK}`
  await tool('debugfs', ['-w', '-R', write, image], { debianPackage: 'e2fsprogs' })
}
