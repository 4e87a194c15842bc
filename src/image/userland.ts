import { existsSync, readdirSync, realpathSync } from 'node:fs'
import { join } from 'node:path'
import { cached } from '../build/cache.ts'
import { nodeManifest, pinnedNode, projectRoot, temporaryRoot } from '../build/project.ts'
import { withTemporaryFolder } from '../build/temporary-folder.ts'
import { extractPackage, type FetchedPackage } from '../debian/packages.ts'
import { checkPrograms, checkRuntimes } from './check-runtimes.ts'
import { directory, fileFrom, link, type TreeEntry, treeOfFolder, writeFolder } from './formats/tree.ts'
import { LIBRARIES, libraryClosure } from './libraries.ts'
import { fetchLocked, packageHashes, userlandPackages } from './packages.ts'
import { RUNTIMES, runtimesFor } from './runtimes.ts'

/** The programs that are copied from the packages; {@link libraryClosure} adds the libraries they need. */
const PROGRAMS = ['usr/bin/kmod', 'usr/sbin/mke2fs', 'usr/sbin/xtables-nft-multi'] as const

/** The links of Debian's merged /usr, and the other names of programs. */
const LINKS: readonly TreeEntry[] = [
  link('bin', 'usr/bin'),
  link('lib', 'usr/lib'),
  link('lib64', 'usr/lib64'),
  link('sbin', 'usr/sbin'),
  link('usr/lib64/ld-linux-x86-64.so.2', '../lib/x86_64-linux-gnu/ld-linux-x86-64.so.2'),
  link('usr/sbin/mkfs.ext4', 'mke2fs'),
  ...[
    'iptables',
    'iptables-save',
    'iptables-restore',
    'ip6tables',
    'ip6tables-save',
    'ip6tables-restore',
  ].map((name) => link(`usr/sbin/${name}`, 'xtables-nft-multi')),
  link('usr/sbin/modprobe', '../bin/kmod'),
  link('var/run', '/run'),
]

/** The matches and targets of iptables: libraries that it loads when a rule names them. */
const FILTER_EXTENSIONS = `${LIBRARIES}/xtables`

/** Mount points and folders that the guest writes to; the mount points in /etc are files of the skeleton. */
const FOLDERS: readonly TreeEntry[] = [
  ...['dev', 'mnt', 'proc', 'run', 'sys', 'var/lib'].map((path) => directory(path)),
  directory('root', 0o700),
  directory('tmp', 0o1777),
]

const skeleton = join(projectRoot, 'rootfs/skeleton')

/** The part of the guest's root that comes from Debian packages and from `rootfs/skeleton`, as a folder of the build cache. */
export async function userlandFolder(progress: (line: string) => void): Promise<string> {
  const packages = await guestPackages(progress)
  const recipe = ['userland.ts', 'libraries.ts', 'check-runtimes.ts', '../oci/runtime-advisories.ts'].map(
    (name) => join(import.meta.dirname, name),
  )
  const inputs = { files: [...recipe, skeleton, nodeManifest], values: packageHashes(packages) }
  return await cached('userland', inputs, async (target) => {
    checkRuntimes(packages, progress)
    progress('unpacking the packages of the guest image')
    await withTemporaryFolder(temporaryRoot, async (unpacked) => {
      for (const { path } of packages) await extractPackage(path, unpacked)
      writeFolder(target, await selectFiles(unpacked))
      await checkPrograms(target, packages)
    })
  })
}

export async function guestPackages(progress: (line: string) => void): Promise<readonly FetchedPackage[]> {
  const userland = await fetchLocked('trixie', userlandPackages(), progress)
  return [...userland, ...(await runtimesFor(userland, progress))]
}

async function selectFiles(root: string): Promise<readonly TreeEntry[]> {
  // Debian may have no runtime that runs in the image; a guest boots without.
  const runtimes = Object.values(RUNTIMES).map(({ program }) => program)
  const present = [...PROGRAMS, ...runtimes.filter((path) => existsSync(join(root, path)))]
  const programs = present.map((path) => [path, locate(root, path)] as const)
  const extensions = filesOf(root, FILTER_EXTENSIONS)
  const loaded = [...programs, ...extensions].map(([, file]) => file)
  const libraries = await libraryClosure(root, [pinnedNode(), ...loaded])
  return [
    ...FOLDERS,
    ...LINKS,
    ...treeOfFolder(skeleton, ''),
    fileFrom('etc/mke2fs.conf', locate(root, 'etc/mke2fs.conf')),
    ...programs.map(([path, file]) => fileFrom(path, file, 0o755)),
    ...extensions.map(([path, file]) => fileFrom(path, file, 0o644)),
    ...[...libraries].map(([soname, file]) => fileFrom(`${LIBRARIES}/${soname}`, file, 0o755)),
  ]
}

function filesOf(root: string, folder: string): readonly (readonly [string, string])[] {
  return readdirSync(join(root, folder))
    .sort()
    .map((name) => [`${folder}/${name}`, realpathSync(join(root, folder, name))] as const)
}

function locate(root: string, path: string): string {
  const found = join(root, path)
  if (!existsSync(found)) throw new Error(`${path}: in no package of the guest image`)
  return realpathSync(found)
}
