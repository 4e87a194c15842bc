import { join, relative } from 'node:path'
import { cached } from '../build/cache.ts'
import { buildRoot } from '../build/project.ts'
import { tool } from '../build/tool.ts'
import { ensureBusybox } from './busybox.ts'
import { writeExt4 } from './formats/file-systems.ts'
import { directory, fileFrom, fileOf, link, type TreeEntry } from './formats/tree.ts'

/** Free space for what a container writes; the image is sparse. */
const FREE_BYTES = 64 * 2 ** 20

/** Builds the default container root unless it is in the build cache: an ext4 image of Debian's static busybox, with a link for each applet. */
export async function ensureContainerRoot(progress: (line: string) => void): Promise<string> {
  const busybox = await ensureBusybox(progress)
  const recipe = ['container-root.ts', 'formats/file-systems.ts', 'formats/tree.ts']
  const inputs = {
    files: recipe.map((name) => join(import.meta.dirname, name)),
    // Files of the build cache never change, and the names of their folders identify their inputs.
    values: [relative(join(buildRoot, 'cache'), busybox)],
  }
  const folder = await cached('container-root', inputs, async (target) => {
    progress('making the container root')
    const root = { freeBytes: FREE_BYTES, label: 'container' }
    await writeExt4(join(target, 'container-root.ext4'), await busyboxTree(busybox), root)
  })
  return join(folder, 'container-root.ext4')
}

async function busyboxTree(busybox: string): Promise<readonly TreeEntry[]> {
  const applets = await tool(busybox, ['--list'], { debianPackage: 'busybox-static' })
  return [
    ...['dev', 'etc', 'proc', 'run', 'sys', 'var'].map((path) => directory(path)),
    directory('root', 0o700),
    directory('tmp', 0o1777),
    fileFrom('bin/busybox', busybox, 0o755),
    ...applets
      .split('\n')
      .filter((applet) => applet !== '' && applet !== 'busybox')
      .map((applet) => link(`bin/${applet}`, 'busybox')),
    fileOf('etc/passwd', 'root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n'),
    fileOf('etc/group', 'root:x:0:\ntty:x:5:\nnogroup:x:65534:\n'),
  ]
}
