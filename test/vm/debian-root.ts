import { chmodSync, readdirSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { debianArchive } from '../../scripts/apt/configuration.ts'
import { tool } from '../../scripts/apt/tool.ts'
import { cached } from '../../scripts/cache.ts'

const SUITE = 'bookworm'

/** What docs/boot.md asks of a root, and an init of its own. There is no udev: the smaller root promises less. */
const PACKAGES = ['systemd-sysv', 'kmod', 'libstdc++6', 'runc']

const KEYRING = '/usr/share/keyrings/debian-archive-keyring.gpg'

/** The folder of a plain Debian root, made once by debootstrap. It is not to be changed: copy it. */
export async function ensureDebianRoot(progress: (line: string) => void): Promise<string> {
  const inputs = { files: [import.meta.filename], values: [] }
  const folder = await cached('debian-root', inputs, async (target) => {
    progress(`making a plain Debian ${SUITE} root (once, about a minute)`)
    await bootstrap(join(target, 'root'))
  })
  return join(folder, 'root')
}

async function bootstrap(root: string): Promise<void> {
  const what = ['--variant=minbase', `--keyring=${KEYRING}`, `--include=${PACKAGES.join(',')}`]
  // What debootstrap mounts goes with its mount namespace, however it ends.
  await tool('unshare', ['--mount', 'debootstrap', ...what, SUITE, root, await debianArchive()], {
    debianPackage: 'debootstrap',
  })
  for (const name of ['var/cache/apt', 'var/lib/apt/lists']) empty(join(root, name))
  chmodSync(root, 0o755)
}

function empty(folder: string): void {
  for (const name of readdirSync(folder)) rmSync(join(folder, name), { recursive: true })
}
