import { chmodSync, readdirSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { cached } from '../../../src/build/cache.ts'
import { tool } from '../../../src/build/tool.ts'
import { debianArchive } from '../../../src/debian/apt.ts'

const SUITE = 'bookworm'

/** The packages that docs/boot.md requires of a root (without udev, which is optional), an init, and a server. */
const PACKAGES = ['systemd-sysv', 'kmod', 'libstdc++6', 'runc', 'nginx']

const KEYRING = '/usr/share/keyrings/debian-archive-keyring.gpg'

/** A plain Debian root, which debootstrap makes once. Callers copy it and must not change it. */
export async function ensureDebianRoot(progress: (line: string) => void): Promise<string> {
  const inputs = { files: [import.meta.filename], values: PACKAGES }
  const folder = await cached('debian-root', inputs, async (target) => {
    progress(`making a Debian ${SUITE} root with ${PACKAGES.join(', ')} (once, about a minute)`)
    await bootstrap(join(target, 'root'))
  })
  return join(folder, 'root')
}

/** Installs without starting services: debootstrap replaces start-stop-daemon by a program that does nothing. */
async function bootstrap(root: string): Promise<void> {
  const what = ['--variant=minbase', `--keyring=${KEYRING}`, `--include=${PACKAGES.join(',')}`]
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
