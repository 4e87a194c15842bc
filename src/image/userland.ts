import { existsSync, readdirSync, realpathSync } from 'node:fs'
import { basename, join } from 'node:path'
import { cached } from '../build/cache.ts'
import { nodeManifest, pinnedNode, projectRoot, temporaryRoot } from '../build/project.ts'
import { withTemporaryFolder } from '../build/temporary-folder.ts'
import { tool } from '../build/tool.ts'
import { extractPackage } from '../debian/packages.ts'
import { directory, fileFrom, link, type TreeEntry, treeOfFolder, writeFolder } from './formats/tree.ts'
import { fetchLocked, packageHashes, userlandPackages } from './packages.ts'

/** The programs that are copied from the packages; {@link libraryClosure} adds the libraries they need. */
const PROGRAMS = [
  'usr/bin/crun',
  'usr/bin/kmod',
  'usr/sbin/mke2fs',
  'usr/sbin/runc',
  'usr/sbin/xtables-nft-multi',
] as const

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
const FILTER_EXTENSIONS = 'usr/lib/x86_64-linux-gnu/xtables'

/** Debian's folders of shared libraries on x86-64. */
const LIBRARY_FOLDERS = ['usr/lib/x86_64-linux-gnu', 'lib/x86_64-linux-gnu']

/** Mount points and folders that the guest writes to; the mount points in /etc are files of the skeleton. */
const FOLDERS: readonly TreeEntry[] = [
  ...['dev', 'mnt', 'proc', 'run', 'sys', 'var/lib'].map((path) => directory(path)),
  directory('root', 0o700),
  directory('tmp', 0o1777),
]

const skeleton = join(projectRoot, 'rootfs/skeleton')

/** The part of the guest's root that comes from Debian packages and from `rootfs/skeleton`. */
export async function userlandTree(progress: (line: string) => void): Promise<readonly TreeEntry[]> {
  const packages = await fetchLocked('bookworm', userlandPackages(), progress)
  const inputs = { files: [import.meta.filename, skeleton, nodeManifest], values: packageHashes(packages) }
  const folder = await cached('userland', inputs, async (target) => {
    progress('unpacking the packages of the guest image')
    await withTemporaryFolder(temporaryRoot, async (unpacked) => {
      for (const { path } of packages) await extractPackage(path, unpacked)
      writeFolder(target, await selectFiles(unpacked))
    })
  })
  return treeOfFolder(folder, '')
}

/** The entries for the image from the packages unpacked at `root`. */
async function selectFiles(root: string): Promise<readonly TreeEntry[]> {
  const programs = PROGRAMS.map((path) => [path, locate(root, path)] as const)
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
    ...[...libraries].map(([soname, file]) => fileFrom(`usr/lib/x86_64-linux-gnu/${soname}`, file, 0o755)),
  ]
}

/** The path in the image and the file of each entry in a folder of the packages. */
function filesOf(root: string, folder: string): readonly (readonly [string, string])[] {
  return readdirSync(join(root, folder))
    .sort()
    .map((name) => [`${folder}/${name}`, realpathSync(join(root, folder, name))] as const)
}

/** Some of bookworm's packages still install into /bin, /sbin and /lib, which are links below /usr in the image. */
function locate(root: string, path: string): string {
  const found = [path, path.replace(/^usr\//, '')]
    .map((candidate) => join(root, candidate))
    .find((candidate) => existsSync(candidate))
  if (found === undefined) throw new Error(`${path}: in no package of the guest image`)
  return realpathSync(found)
}

/**
 * The shared libraries that the ELF files `programs` need, directly or through other libraries: from soname to the file
 * below `root`, the unpacked packages. The machine's own libraries are never used. Throws for a library that no package has.
 */
async function libraryClosure(
  root: string,
  programs: readonly string[],
): Promise<ReadonlyMap<string, string>> {
  const found = new Map<string, string>()
  for (let files = programs; files.length > 0; ) {
    const sonames = (await neededBy(files)).filter((soname) => !found.has(soname))
    files = sonames.map((soname) => {
      const file = findLibrary(root, soname)
      if (file === undefined)
        throw new Error(
          `${soname}: in no package, but ${files.map((path) => basename(path)).join(' or ')} needs it`,
        )
      found.set(soname, file)
      return file
    })
  }
  return found
}

async function neededBy(files: readonly string[]): Promise<readonly string[]> {
  const dynamic = await tool('readelf', ['--dynamic', '--wide', ...files], { debianPackage: 'binutils' })
  const sonames = Array.from(dynamic.matchAll(/\(NEEDED\).*\[(.+)\]/g), (match) => match[1] ?? '')
  return [...new Set(sonames)].sort()
}

function findLibrary(root: string, soname: string): string | undefined {
  const path = LIBRARY_FOLDERS.map((folder) => join(root, folder, soname)).find((candidate) =>
    existsSync(candidate),
  )
  return path === undefined ? undefined : realpathSync(path)
}
