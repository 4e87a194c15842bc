import { mkdirSync, rmSync, symlinkSync, truncateSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { tool } from '../../../src/build/tool.ts'
import type { Kernel } from '../../../src/image/kernel/kernel.ts'

/** Large enough for the archive's content and the guest's writes; the file is sparse. */
const IMAGE_BYTES = 1024 * 2 ** 20

export interface ForeignImageParts {
  readonly base: string
  readonly archive: string
  /** Its modules are copied too. */
  readonly kernel: Kernel
}

/** Copies the base to the new folder `root` and prepares it as docs/boot.md describes, for vminit and for systemd. */
export async function makeForeignRoot(root: string, parts: ForeignImageParts): Promise<void> {
  const { base, archive, kernel } = parts
  await tool('cp', ['--archive', base, root], { debianPackage: 'coreutils' })
  const modules = join(root, 'usr/lib/modules')
  mkdirSync(modules, { recursive: true })
  await tool('cp', ['--archive', kernel.modules, modules], { debianPackage: 'coreutils' })
  await tool('tar', ['--zstd', '-xf', archive, '-C', root], { debianPackage: 'tar zstd' })
  await tool('chroot', [root, 'systemctl', 'enable', 'microvm-agent'], { debianPackage: 'coreutils' })
  const dropIns = join(root, 'etc/systemd/system/microvm-agent.service.d')
  mkdirSync(dropIns)
  writeFileSync(join(dropIns, 'power-off.conf'), '[Unit]\nSuccessAction=poweroff\n')
  // systemd then starts by its own path: init=/lib/systemd/systemd.
  const init = join(root, 'usr/sbin/init')
  rmSync(init)
  symlinkSync('../lib/microvm-agent/vminit', init)
}

export async function writeForeignImage(path: string, root: string): Promise<void> {
  writeFileSync(path, '')
  truncateSync(path, IMAGE_BYTES)
  const settled = ['-E', 'lazy_itable_init=0,lazy_journal_init=0']
  await tool('mke2fs', ['-q', '-F', '-t', 'ext4', ...settled, '-d', root, path], {
    debianPackage: 'e2fsprogs',
  })
}
