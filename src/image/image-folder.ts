import { createHash } from 'node:crypto'
import { constants, copyFileSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { bundledPackages } from '../build/agent.ts'
import { tool } from '../build/tool.ts'
import type { FetchedPackage } from '../debian/packages.ts'
import { ensureImage, type GuestImage } from './ensure-image.ts'
import { kataConfiguration } from './kata-configuration.ts'
import { ensureBuiltInKernel } from './kernel/built-in-kernel.ts'
import { kernelPackages } from './kernel/kernel.ts'
import { busyboxPackages, DEFAULT_KERNEL, fetchLocked } from './packages.ts'
import { ensurePolicyAddon } from './policy-addon.ts'
import { type DebianPart, guestSbom } from './sbom.ts'
import { guestPackages } from './userland.ts'

/** The files of the folder in their order, and what each is. */
const FILES = {
  vmlinuz: "Debian's kernel",
  'vmlinuz-built-in': 'a kernel that mounts root.img without an initrd',
  'initrd.img': 'the whole guest: boots with initrd= alone',
  'initrd-stage-one.img': "mounts a root disk on Debian's kernel",
  'root.erofs': 'root disk without partitions',
  'root.img': 'the same root disk in a partition: image= of Kata',
  'configuration-microvm-agent-go.toml': "what to change for Kata's Go shim",
  'configuration-microvm-agent-rs.toml': 'what to change for runtime-rs',
  'sbom.cdx.json': 'what is inside: CycloneDX 1.6',
  SHA256SUMS: 'checksums: sha256sum --check SHA256SUMS',
} as const

type FileName = keyof typeof FILES

/** One file of the folder. */
export interface WrittenFile {
  readonly name: string
  readonly bytes: number
  /** In hexadecimal. */
  readonly sha256: string
  /** What it is, for people. */
  readonly what: string
}

/** Where the folder is, and where its files will lie. */
export interface ImageFolderOptions {
  readonly folder: string
  readonly installPath: string
  /** Whether the kernel with built-in drivers is wanted too. */
  readonly kernel: boolean
  /** The policy that the guest has from its start, in Rego and checked. */
  readonly policy: string | undefined
  /** Whether the guest has a shell for the debug console, which the snippets then turn on. */
  readonly debugShell: boolean
  readonly progress: (line: string) => void
}

/**
 * Writes the guest image for hypervisors and shims into `folder` (docs/kata.md). Each file appears complete, SHA256SUMS
 * last; a file of an earlier run that is not written again is removed, and whatever else is in the folder stays. The same
 * sources and options give the same bytes.
 */
export async function writeImageFolder(options: ImageFolderOptions): Promise<readonly WrittenFile[]> {
  const { folder, debugShell, progress } = options
  // First, because the image may take minutes.
  await makeFolder(folder)
  const builtIn = options.kernel ? await ensureBuiltInKernel(progress) : undefined
  const policy = options.policy === undefined ? true : { text: options.policy }
  const wanted = { policy, debugShell, progress }
  const { kernel, initrd } = await ensureImage({ form: 'initrd', ...wanted })
  const disk = await ensureImage({ form: 'disk', ...wanted })
  const partitioned = await ensureImage({ form: 'partitioned', ...wanted })
  const sources: readonly (readonly [FileName, Source])[] = [
    ['vmlinuz', { path: kernel }],
    ...(builtIn === undefined ? [] : [['vmlinuz-built-in', { path: builtIn }] as const]),
    ['initrd.img', { path: initrd }],
    ['initrd-stage-one.img', { path: disk.initrd }],
    ['root.erofs', { path: diskOf(disk) }],
    ['root.img', { path: diskOf(partitioned) }],
    ['configuration-microvm-agent-go.toml', { text: kataConfiguration('go', options) }],
    ['configuration-microvm-agent-rs.toml', { text: kataConfiguration('rs', options) }],
    ['sbom.cdx.json', { text: await sbom(options) }],
  ]
  progress(`writing ${folder}`)
  // Checksums of an earlier run would be wrong from the first file on.
  rmSync(join(folder, 'SHA256SUMS'), { force: true })
  const files = sources.map(([name, source]) => write(folder, name, source))
  const written = new Set(files.map(({ name }) => name))
  for (const name of Object.keys(FILES)) if (!written.has(name)) rmSync(join(folder, name), { force: true })
  const sums = files.map(({ sha256, name }) => `${sha256}  ${name}\n`).join('')
  return [...files, write(folder, 'SHA256SUMS', { text: sums })]
}

/** By mkdir(1), because Node's mkdir never returns where new folders are refused with ENOENT, as in /proc. */
async function makeFolder(folder: string): Promise<void> {
  try {
    await tool('mkdir', ['--parents', '--', folder], { debianPackage: 'coreutils' })
  } catch (error) {
    throw new Error(`--out ${folder}: cannot be made, want a folder that can be written`, { cause: error })
  }
}

function diskOf({ root }: GuestImage): string {
  if (root === undefined) throw new Error('guest image: no root disk')
  return root.path
}

type Source = { readonly path: string } | { readonly text: string }

function write(folder: string, name: FileName, source: Source): WrittenFile {
  const path = join(folder, name)
  const fresh = `${path}.tmp`
  if ('text' in source) writeFileSync(fresh, source.text)
  else copyFileSync(source.path, fresh, constants.COPYFILE_FICLONE)
  renameSync(fresh, path)
  const sha256 = createHash('sha256').update(readFileSync(path)).digest('hex')
  return { name, bytes: statSync(path).size, sha256, what: FILES[name] }
}

async function sbom({ kernel, debugShell, progress }: ImageFolderOptions): Promise<string> {
  const kernels = await kernelPackages(DEFAULT_KERNEL, progress)
  const { crates, standardLibrary } = await ensurePolicyAddon(progress)
  return guestSbom({
    debian: [
      ...kernels,
      ...(kernel ? kernels.map(sourceOfKernel) : []),
      ...(await guestPackages(progress)),
      ...(debugShell ? await fetchLocked('bookworm', busyboxPackages, progress) : []),
      await linkedLibc(),
      { ...standardLibrary, suite: 'bookworm' },
    ],
    crates,
    npmFolders: await bundledPackages(),
  })
}

/** linux-source-6.12 of linux-image-6.12.118+deb13-cloud-amd64, in the same version. */
function sourceOfKernel({ name, version, suite }: FetchedPackage): DebianPart {
  return {
    suite,
    name: name.replace(/^linux-image-(\d+\.\d+).*/, 'linux-source-$1'),
    version,
    architecture: 'all',
  }
}

/** The C library of this machine, which is linked into vminit. */
async function linkedLibc(): Promise<DebianPart> {
  // "libc6-dev:amd64", a tab, and the version.
  const shown = await tool('dpkg-query', ['--show', 'libc6-dev'], { debianPackage: 'libc6-dev' })
  const [name = '', architecture = '', version = ''] = shown.trim().split(/:(?=.*\t)|\t/)
  return { suite: 'bookworm', name, version, architecture }
}
