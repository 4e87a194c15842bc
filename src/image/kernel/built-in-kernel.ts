import { copyFileSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import { join } from 'node:path'
import { cached } from '../../build/cache.ts'
import { projectRoot, temporaryRoot } from '../../build/project.ts'
import { withTemporaryFolder } from '../../build/temporary-folder.ts'
import { tool } from '../../build/tool.ts'
import { extractPackage, type FetchedPackage, fetchPackages } from '../../debian/packages.ts'
import { builtInKernelPackages, DEFAULT_KERNEL, fetchLocked, packageHashes } from '../packages.ts'
import { kernelPackages } from './kernel.ts'

/** What the kernel has in place of Debian's settings for its cloud kernel. */
const fragmentFile = join(projectRoot, 'rootfs/kernel-config')

type Progress = (line: string) => void

/**
 * A bzImage that needs no modules and no initrd, of Debian's source for the kernel that the guest image has. Returns an
 * earlier result for the same packages and settings, or a new one, which takes long. Throws for a setting of
 * rootfs/kernel-config that the kernel does not take.
 */
export async function ensureBuiltInKernel(progress: Progress): Promise<string> {
  const [image] = await kernelPackages(DEFAULT_KERNEL, progress)
  if (image === undefined) throw new Error(`Debian's kernel ${DEFAULT_KERNEL}: no package`)
  const source = await sourceOf(image, progress)
  const tools = await fetchLocked('bookworm', builtInKernelPackages, progress)
  const inputs = {
    files: [fragmentFile, import.meta.filename],
    values: packageHashes([image, source, ...tools]),
  }
  const folder = await cached('built-in-kernel', inputs, async (target) => {
    await withTemporaryFolder(temporaryRoot, async (work) => {
      for (const { path } of tools) await extractPackage(path, join(work, 'tools'))
      for (const { path } of [image, source]) await extractPackage(path, join(work, 'packages'))
      const tree = await unpackSource(work, progress)
      await configure(tree, work)
      progress('building the kernel with its drivers built in (once, an hour or more on two CPUs)')
      await make(tree, work, [`-j${availableParallelism()}`, 'bzImage'])
      copyFileSync(join(tree, 'arch/x86/boot/bzImage'), join(target, 'bzImage'))
    })
  })
  return join(folder, 'bzImage')
}

/** The source package of a kernel package, in the same version: linux-source-6.12 of linux-image-6.12.118+deb13-cloud-amd64. */
async function sourceOf(
  { suite, name, version }: FetchedPackage,
  progress: Progress,
): Promise<FetchedPackage> {
  const series = /^linux-image-(\d+\.\d+)\./.exec(name)?.[1]
  if (series === undefined) throw new Error(`${name}: no series of kernels in this name`)
  const packages = [`linux-source-${series}=${version}`]
  const [source] = await fetchPackages({ suite, packages, progress })
  if (source === undefined) throw new Error(`Debian ${suite}: no package linux-source-${series}`)
  return source
}

async function unpackSource(work: string, progress: Progress): Promise<string> {
  const sources = join(work, 'packages/usr/src')
  const archive = readdirSync(sources).find((name) => name.endsWith('.tar.xz'))
  if (archive === undefined) throw new Error(`${sources}: no archive of the kernel's source`)
  progress("unpacking the kernel's source")
  const tree = join(work, 'source')
  mkdirSync(tree)
  const options = ['--extract', '--strip-components=1', '--directory', tree]
  await tool('tar', [...options, '--file', join(sources, archive)], { debianPackage: 'tar xz-utils' })
  return tree
}

async function configure(tree: string, work: string): Promise<void> {
  const boot = join(work, 'packages/boot')
  const name = readdirSync(boot).find((entry) => entry.startsWith('config-'))
  if (name === undefined) throw new Error(`${boot}: no configuration of Debian's kernel`)
  const fragment = readFileSync(fragmentFile, 'utf8')
  const file = join(tree, '.config')
  writeFileSync(file, kernelConfiguration(readFileSync(join(boot, name), 'utf8'), fragment))
  await make(tree, work, ['olddefconfig', 'mod2noconfig'])
  checkConfiguration(readFileSync(file, 'utf8'), fragment)
}

async function make(tree: string, work: string, targets: readonly string[]): Promise<void> {
  const tools = join(work, 'tools/usr')
  const libraries = join(tools, 'lib/x86_64-linux-gnu')
  await tool('make', ['--silent', '-C', tree, ...targets], {
    debianPackage: 'make bc gcc libc6-dev perl zstd',
    env: {
      PATH: `${join(tools, 'bin')}:${process.env.PATH ?? ''}`,
      M4: join(tools, 'bin/m4'),
      BISON_PKGDATADIR: join(tools, 'share/bison'),
      LD_LIBRARY_PATH: libraries,
      // For the build's own programs; the kernel is compiled without system headers and libraries.
      C_INCLUDE_PATH: join(tools, 'include'),
      LIBRARY_PATH: libraries,
      // What the kernel says about its build: the same each time.
      KBUILD_BUILD_TIMESTAMP: '1970-01-01',
      KBUILD_BUILD_USER: 'microvm',
      KBUILD_BUILD_HOST: 'microvm',
    },
  })
}

/**
 * A kernel configuration: `base` without its modules, and then `fragment`, whose later lines win. A name of the fragment
 * with `*` stands for every module of `base` by such a name.
 */
export function kernelConfiguration(base: string, fragment: string): string {
  const lines = base.split('\n')
  const modules = lines.filter((line) => line.endsWith('=m')).map((line) => line.slice(0, -2))
  const chosen = settingsOf(fragment).flatMap((line) => {
    if (!line.includes('*')) return [line]
    const [name = '', value = ''] = line.split('=')
    const pattern = new RegExp(`^${name.replaceAll('*', '\\w*')}$`)
    const matching = modules.filter((module) => pattern.test(module))
    if (matching.length === 0) throw new Error(`${name}: no module of Debian's kernel has such a name`)
    return matching.map((module) => `${module}=${value}`)
  })
  return `${[...lines.filter((line) => !line.endsWith('=m')), ...chosen].join('\n')}\n`
}

/**
 * Throws when `configuration`, as the kernel's own tool has completed it, lacks a setting of `fragment`: the option does
 * not exist, or others that it needs are not set.
 */
export function checkConfiguration(configuration: string, fragment: string): void {
  const lines = new Set(configuration.split('\n'))
  const missing = settingsOf(fragment).filter((setting) => {
    if (setting.includes('*') || lines.has(setting)) return false
    const unset = NOT_SET.exec(setting)?.[1]
    // An option that others hide is not named at all.
    return unset === undefined || [...lines].some((line) => line.startsWith(`${unset}=`))
  })
  if (missing.length > 0)
    throw new Error(`rootfs/kernel-config: not taken by the kernel: ${missing.join(', ')}`)
}

const NOT_SET = /^# (CONFIG_\w+) is not set$/

/** The lines of a fragment that set something: `CONFIG_…=…` and `# CONFIG_… is not set`. */
function settingsOf(fragment: string): readonly string[] {
  return fragment.split('\n').filter((line) => line.startsWith('CONFIG_') || NOT_SET.test(line))
}
