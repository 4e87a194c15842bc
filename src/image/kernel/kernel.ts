import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { zstdDecompressSync } from 'node:zlib'
import { cached } from '../../build/cache.ts'
import { projectRoot, temporaryRoot } from '../../build/project.ts'
import { withTemporaryFolder } from '../../build/temporary-folder.ts'
import { tool } from '../../build/tool.ts'
import { extractPackage, type FetchedPackage } from '../../debian/packages.ts'
import { fetchLocked, KERNELS, type KernelName, packageHashes, parseList } from '../packages.ts'
import { loadOrder, readModuleIndex } from './module-list.ts'

/** A kernel and the modules of it that the guest has. */
export interface Kernel {
  /** As `uname -r` prints it. */
  readonly version: string
  /** The bzImage. */
  readonly image: string
  readonly vmlinux: string | undefined
  /** The folder for /lib/modules/VERSION: uncompressed modules and depmod's files. */
  readonly modules: string
}

const moduleListFile = join(projectRoot, 'rootfs/modules')

export async function ensureKernel(name: KernelName, progress: (line: string) => void): Promise<Kernel> {
  const { modules } = KERNELS[name]
  const packages = await kernelPackages(name, progress)
  const recipe = ['kernel.ts', 'module-list.ts'].map((name) => join(import.meta.dirname, name))
  const inputs = { files: [moduleListFile, ...recipe], values: [...packageHashes(packages), ...modules] }
  const folder = await cached(`kernel-${name}`, inputs, async (target) => {
    progress(`unpacking the kernel ${name} of Debian`)
    for (const { path } of packages) await unpackKernel(path, target, modules)
  })
  const version = readdirSync(join(folder, 'lib/modules'))[0]
  if (version === undefined) throw new Error(`${folder}: no kernel modules, want it removed and built again`)
  const vmlinux = join(folder, 'vmlinux')
  const files = { image: join(folder, 'bzImage'), modules: join(folder, 'lib/modules', version) }
  return { version, ...files, vmlinux: existsSync(vmlinux) ? vmlinux : undefined }
}

/** The Debian package that a kernel and its modules are taken from, fetched. */
export async function kernelPackages(
  name: KernelName,
  progress: (line: string) => void,
): Promise<readonly FetchedPackage[]> {
  const { suite, metapackage: wanted } = KERNELS[name]
  const [metapackage] = await fetchLocked(suite, [wanted], progress)
  if (metapackage === undefined) throw new Error(`Debian ${suite}: no package ${wanted}`)
  return await fetchLocked(suite, [await kernelPackageOf(metapackage.path)], progress)
}

/** The name of the kernel package that the metapackage at `path` depends on. */
export async function kernelPackageOf(path: string): Promise<string> {
  const depends = await tool('dpkg-deb', ['--field', path, 'Depends'], { debianPackage: 'dpkg' })
  const name = depends.match(/linux-image-[^ ,]+/)?.[0]
  if (name === undefined)
    throw new Error(`${path}: depends on "${depends.trim()}", want a linux-image package`)
  return name
}

async function unpackKernel(deb: string, target: string, modules: readonly string[]): Promise<void> {
  await withTemporaryFolder(temporaryRoot, async (temporary) => {
    await extractPackage(deb, temporary)
    // Modules are below /lib in bookworm's packages and below /usr/lib in trixie's.
    const root = existsSync(join(temporary, 'lib')) ? temporary : join(temporary, 'usr')
    const version = readdirSync(join(root, 'lib/modules'))[0]
    if (version === undefined) throw new Error(`${deb}: no kernel modules`)
    await selectModules(join(root, 'lib/modules', version), target, modules)
    renameSync(join(temporary, 'boot', `vmlinuz-${version}`), join(target, 'bzImage'))
    const vmlinux = unpackedKernel(readFileSync(join(target, 'bzImage')))
    if (vmlinux !== undefined) writeFileSync(join(target, 'vmlinux'), vmlinux)
  })
}

const ZSTD_MAGIC = 0xfd2fb528

/** The ELF file in a bzImage (Documentation/arch/x86/boot.rst). Undefined unless it is compressed by zstd. */
export function unpackedKernel(bzImage: Buffer): Buffer | undefined {
  const start = (bzImage.readUInt8(0x1f1) + 1) * 512 + bzImage.readUInt32LE(0x248)
  if (bzImage.readUInt32LE(start) !== ZSTD_MAGIC) return undefined
  // The last four bytes are the size of the ELF file.
  return zstdDecompressSync(bzImage.subarray(start, start + bzImage.readUInt32LE(0x24c) - 4))
}

/** Moves the listed modules, `modules` and all that they need from `source` to `to`/lib/modules, uncompressed and indexed. */
async function selectModules(source: string, to: string, modules: readonly string[]): Promise<void> {
  const version = basename(source)
  const depmod = (root: string) => tool('depmod', ['-b', root, version], { debianPackage: 'kmod' })
  await depmod(join(source, '../../..'))
  const target = join(to, 'lib/modules', version)
  const wanted = [...parseList(readFileSync(moduleListFile, 'utf8')), ...modules]
  const files = loadOrder(readModuleIndex(source), wanted)
  for (const file of files) {
    mkdirSync(dirname(join(target, file)), { recursive: true })
    renameSync(join(source, file), join(target, file))
  }
  for (const name of ['modules.builtin', 'modules.builtin.modinfo', 'modules.order'])
    renameSync(join(source, name), join(target, name))
  const compressed = files.filter((file) => file.endsWith('.xz')).map((file) => join(target, file))
  if (compressed.length > 0) await tool('xz', ['--decompress', ...compressed], { debianPackage: 'xz-utils' })
  await depmod(to)
}
