import { join } from 'node:path'
import { cached } from '../build/cache.ts'
import { temporaryRoot } from '../build/project.ts'
import { withTemporaryFolder } from '../build/temporary-folder.ts'
import { tool } from '../build/tool.ts'
import { extractPackage } from '../debian/packages.ts'
import { writeExt4 } from './formats/file-systems.ts'
import { directory, fileFrom, fileOf, link, type TreeEntry } from './formats/tree.ts'
import { containerPackages, fetchLocked, packageHashes } from './packages.ts'

/** Free space for what a container writes; the image is sparse. */
const FREE_BYTES = 64 * 2 ** 20

/** Builds the default container root unless it is in the build cache: an ext4 image of Debian's static busybox, with a link for each applet. */
export async function ensureContainerRoot(progress: (line: string) => void): Promise<string> {
  const packages = await fetchLocked('bookworm', containerPackages, progress)
  const recipe = ['container-root.ts', 'formats/file-systems.ts', 'formats/tree.ts']
  const inputs = {
    files: recipe.map((name) => join(import.meta.dirname, name)),
    values: packageHashes(packages),
  }
  const folder = await cached('container-root', inputs, async (target) => {
    progress('making the container root')
    await withTemporaryFolder(temporaryRoot, async (unpacked) => {
      for (const { path } of packages) await extractPackage(path, unpacked)
      const tree = await busyboxTree(join(unpacked, 'bin/busybox'))
      await writeExt4(join(target, 'container-root.ext4'), tree, {
        freeBytes: FREE_BYTES,
        label: 'container',
      })
    })
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
