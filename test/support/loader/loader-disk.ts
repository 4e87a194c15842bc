import { execFileSync } from 'node:child_process'
import { statSync, truncateSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { cached } from '../../../src/build/cache.ts'
import { tool } from '../../../src/build/tool.ts'
import { extractPackage, fetchPackages } from '../../../src/debian/packages.ts'
import { ensureImage } from '../../../src/image/ensure-image.ts'

/** What GRUB writes to the console. */
export const LOADER_SAYS = 'GRUB loads the kernel'

const MIB = 2 ** 20
const SECTOR = 512
/** Where the partitions begin. GRUB's core for BIOS lies between the table and the first one. */
const BOOT = MIB
const ROOT = 40 * MIB

const PACKAGES = ['grub-common', 'grub-pc-bin', 'grub-efi-amd64-bin', 'mtools']
const MODULES = ['part_msdos', 'fat', 'normal', 'linux', 'serial', 'echo']

const SERIAL = `serial --unit=0
terminal_output serial
echo '${LOADER_SAYS}'
`
const LINUX = 'console=ttyS0 panic=-1 root=/dev/vda2 rootfstype=erofs ro'

/** UEFI finds no loader at the path of removable disks, so its shell runs this: it writes a boot entry and powers off. */
const SCRIPT = 'bcfg boot add 0 fs0:\\EFI\\debian\\grubx64.efi "debian"\r\nreset -s\r\n'

/** A disk with GRUB for BIOS and for UEFI, which load the project's guest from it. Callers copy it and must not change it. */
export async function loaderDisk(progress: (line: string) => void): Promise<string> {
  const { kernel, initrd, root } = await ensureImage({ progress })
  const packages = await grubPackages(progress)
  const values = [kernel, initrd, root?.path ?? '', ...packages.map(({ sha256 }) => sha256)]
  const folder = await cached('loader-disk', { files: [import.meta.filename], values }, async (target) => {
    progress('making a disk with a boot loader')
    const tools = join(target, 'tools')
    for (const { path } of packages) await extractPackage(path, tools)
    await makeDisk(join(target, 'disk.img'), { tools, kernel, initrd, root: root?.path })
  })
  return join(folder, 'disk.img')
}

/** Makes a disk with GRUB, a kernel and an initrd that is the root, for a machine without a serial port. `folder` is for tools. */
export async function makeInitrdDisk(
  disk: string,
  files: Pick<Contents, 'kernel' | 'initrd'> & { readonly folder: string },
  progress: (line: string) => void,
): Promise<void> {
  const tools = join(files.folder, 'tools')
  for (const { path } of await grubPackages(progress)) await extractPackage(path, tools)
  await makeDisk(disk, { ...files, tools, root: undefined })
}

async function grubPackages(progress: (line: string) => void) {
  return await fetchPackages({ suite: 'bookworm', packages: PACKAGES, progress })
}

interface Contents {
  /** Where the packages are. */
  readonly tools: string
  readonly kernel: string
  readonly initrd: string
  /** The file system of the second partition; undefined: the initrd is the root, and nobody sees the console. */
  readonly root: string | undefined
}

async function makeDisk(disk: string, { tools, kernel, initrd, root }: Contents): Promise<void> {
  writeFileSync(disk, '')
  truncateSync(disk, ROOT + (root === undefined ? MIB : statSync(root).size))
  const sectors = (ROOT - BOOT) / SECTOR
  const table = `label: dos\n${BOOT / SECTOR},${sectors},ef,*\n${ROOT / SECTOR},,83\n`
  execFileSync('/sbin/sfdisk', ['--quiet', disk], { input: table, stdio: 'pipe' })
  const grub = (format: string, file: string, ...more: readonly string[]) => {
    const from = ['-d', join(tools, 'usr/lib/grub', format), '-O', format]
    const args = [...from, '-p', '(hd0,msdos1)/grub', '-o', join(tools, file), ...more, ...MODULES]
    return tool(join(tools, 'usr/bin/grub-mkimage'), args, { debianPackage: 'grub-common' })
  }
  await grub('i386-pc', 'core.img', 'biosdisk')
  await grub('x86_64-efi', 'grubx64.efi')
  await place(disk, join(tools, 'usr/lib/grub/i386-pc/boot.img'), { at: 0, bytes: 440 })
  await place(disk, join(tools, 'core.img'), { at: SECTOR })
  if (root !== undefined) await place(disk, root, { at: ROOT })
  const boot = async (command: string, ...args: readonly string[]) => {
    const words = ['-c', command, '-i', `${disk}@@${BOOT}`, ...args]
    await tool(join(tools, 'usr/bin/mtools'), words, { debianPackage: 'mtools' })
  }
  await boot('mformat', '-T', `${sectors}`, '-h', '16', '-s', '63', '::')
  for (const name of ['grub', 'EFI', 'EFI/debian']) await boot('mmd', `::${name}`)
  const [begin, words] = root === undefined ? ['', 'quiet mitigations=off'] : [SERIAL, LINUX]
  const load = `linux /vmlinuz ${words}\ninitrd /initrd.img\nboot\n`
  writeFileSync(join(tools, 'grub.cfg'), `${begin}${load}`)
  writeFileSync(join(tools, 'startup.nsh'), SCRIPT)
  await boot('mcopy', join(tools, 'grub.cfg'), '::grub/grub.cfg')
  await boot('mcopy', join(tools, 'grubx64.efi'), '::EFI/debian/grubx64.efi')
  await boot('mcopy', kernel, '::vmlinuz')
  await boot('mcopy', initrd, '::initrd.img')
  await boot('mcopy', join(tools, 'startup.nsh'), '::startup.nsh')
}

/** Writes a file into the disk. */
async function place(
  disk: string,
  file: string,
  { at, bytes }: { at: number; bytes?: number },
): Promise<void> {
  const limits = ['iflag=count_bytes', ...(bytes === undefined ? [] : [`count=${bytes}`])]
  const words = [`if=${file}`, `of=${disk}`, 'bs=1M', `seek=${at}`, 'oflag=seek_bytes', 'conv=notrunc,sparse']
  await tool('dd', [...words, ...limits], { debianPackage: 'coreutils' })
}
