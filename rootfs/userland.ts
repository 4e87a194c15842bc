import { existsSync, readdirSync, realpathSync } from 'node:fs'
import { join } from 'node:path'
import { cached } from '../src/build/cache.ts'
import { nodeManifest, pinnedNode, temporaryRoot } from '../src/build/project.ts'
import { withTemporaryFolder } from '../src/build/temporary-folder.ts'
import { extractPackage } from '../src/debian/packages.ts'
import { treeOfFolder, writeFolder } from './folder.ts'
import { libraryClosure } from './libraries.ts'
import { fetchLocked, packageHashes, userlandPackages } from './packages.ts'
import { directory, fileFrom, link, type TreeEntry } from './tree.ts'

/** Programs and files that are taken out of the packages; the libraries they need follow by themselves. */
const PROGRAMS = [
  'usr/bin/crun',
  'usr/bin/hostname',
  'usr/bin/kmod',
  'usr/bin/unshare',
  'usr/sbin/mke2fs',
  'usr/sbin/runc',
  'usr/sbin/xtables-nft-multi',
] as const

/** Debian's merged /usr, and the names under which programs are called. */
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

/** Matches and targets of iptables, each a library that it loads when a rule names it. */
const FILTER_EXTENSIONS = 'usr/lib/x86_64-linux-gnu/xtables'

/** Where the guest mounts or writes something; /etc's mount points are files of the skeleton. */
const FOLDERS: readonly TreeEntry[] = [
  ...['dev', 'mnt', 'proc', 'run', 'sys', 'var/lib'].map((path) => directory(path)),
  directory('root', 0o700),
  directory('tmp', 0o1777),
]

const skeleton = join(import.meta.dirname, 'skeleton')

/** Everything of the guest's root that comes from Debian packages or from `rootfs/skeleton`. */
export async function userlandTree(progress: (line: string) => void): Promise<readonly TreeEntry[]> {
  const packages = await fetchLocked('bookworm', userlandPackages, progress)
  const recipe = ['userland.ts', 'libraries.ts', 'skeleton'].map((name) => join(import.meta.dirname, name))
  const inputs = { files: [...recipe, nodeManifest], values: packageHashes(packages) }
  const folder = await cached('userland', inputs, async (target) => {
    progress('unpacking the packages of the guest image')
    await withTemporaryFolder(temporaryRoot, async (unpacked) => {
      for (const { path } of packages) await extractPackage(path, unpacked)
      writeFolder(target, await selectFiles(unpacked))
    })
  })
  return treeOfFolder(folder, '')
}

/** The image's part of the packages that are unpacked, one over the other, at `root`. */
async function selectFiles(root: string): Promise<readonly TreeEntry[]> {
  const ours = PROGRAMS.map((path) => [path, locate(root, path)] as const)
  const extensions = filesOf(root, FILTER_EXTENSIONS)
  const loaded = [...ours, ...extensions].map(([, file]) => file)
  const libraries = await libraryClosure(root, [pinnedNode(), ...loaded])
  return [
    ...FOLDERS,
    ...LINKS,
    ...treeOfFolder(skeleton, ''),
    fileFrom('etc/mke2fs.conf', locate(root, 'etc/mke2fs.conf')),
    ...ours.map(([path, file]) => fileFrom(path, file, 0o755)),
    ...extensions.map(([path, file]) => fileFrom(path, file, 0o644)),
    ...[...libraries].map(([soname, file]) => fileFrom(`usr/lib/x86_64-linux-gnu/${soname}`, file, 0o755)),
  ]
}

/** The path in the image, and the file, of everything in a folder of the packages. */
function filesOf(root: string, folder: string): readonly (readonly [string, string])[] {
  return readdirSync(join(root, folder))
    .sort()
    .map((name) => [`${folder}/${name}`, realpathSync(join(root, folder, name))] as const)
}

/** bookworm's packages still name /bin, /sbin and /lib for some of what lies below /usr in the image. */
function locate(root: string, path: string): string {
  const found = [path, path.replace(/^usr\//, '')]
    .map((candidate) => join(root, candidate))
    .find((candidate) => existsSync(candidate))
  if (found === undefined) throw new Error(`no package of the guest image holds ${path}`)
  return realpathSync(found)
}
