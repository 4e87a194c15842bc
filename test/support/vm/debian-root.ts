import { chmodSync, readdirSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { cached } from '../../../src/build/cache.ts'
import { tool } from '../../../src/build/tool.ts'
import { debianArchive } from '../../../src/debian/apt.ts'

const SUITE = 'bookworm'

/** A Debian root: its name in build/cache, and its packages besides those of the smallest one. */
export interface DebianRoot {
  readonly name: string
  readonly packages: readonly string[]
}

/** The packages that docs/boot.md requires of a root, and an init. udev is left out, because it is not required. */
export const FOREIGN_ROOT: DebianRoot = {
  name: 'debian-root',
  packages: ['systemd-sysv', 'kmod', 'libstdc++6', 'runc'],
}

/** A container's root: no init, no kernel, and a server. */
export const NGINX_ROOT: DebianRoot = { name: 'debian-nginx', packages: ['nginx'] }

const KEYRING = '/usr/share/keyrings/debian-archive-keyring.gpg'

/** The folder of a plain Debian root, which debootstrap makes once. Callers must not change it: they copy it. */
export async function ensureDebianRoot(
  { name, packages }: DebianRoot,
  progress: (line: string) => void,
): Promise<string> {
  const inputs = { files: [import.meta.filename], values: packages }
  const folder = await cached(name, inputs, async (target) => {
    progress(`making a Debian ${SUITE} root with ${packages.join(', ')} (once, about a minute)`)
    await bootstrap(join(target, 'root'), packages)
  })
  return join(folder, 'root')
}

/** Installs the packages without starting services: debootstrap replaces start-stop-daemon by one that does nothing. */
async function bootstrap(root: string, packages: readonly string[]): Promise<void> {
  const what = ['--variant=minbase', `--keyring=${KEYRING}`, `--include=${packages.join(',')}`]
  // The mounts of debootstrap disappear with its mount namespace, however it ends.
  await tool('unshare', ['--mount', 'debootstrap', ...what, SUITE, root, await debianArchive()], {
    debianPackage: 'debootstrap',
  })
  for (const name of ['var/cache/apt', 'var/lib/apt/lists']) empty(join(root, name))
  chmodSync(root, 0o755)
}

function empty(folder: string): void {
  for (const name of readdirSync(folder)) rmSync(join(folder, name), { recursive: true })
}
