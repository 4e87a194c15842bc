import { execFileSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'

/** A package; its program, if any, needs this version of glibc. */
export interface MirrorPackage {
  readonly name: string
  readonly version: string
  readonly glibc: string
}

export type MirrorContent = Readonly<Record<string, readonly MirrorPackage[]>>

/** A Debian archive on the loopback, signed with its own key. Releases without packages are empty. */
export interface DebianMirror {
  readonly url: string
  /** The public key; it replaces Debian's keyring. */
  readonly keyring: string
  publish(content: MirrorContent): Readonly<Record<string, readonly string[]>>
  close(): void
}

const RELEASES = ['trixie', 'trixie-security', 'trixie-backports', 'forky', 'forky-security', 'sid']

export async function debianMirror(folder: string): Promise<DebianMirror> {
  const files = join(folder, 'files')
  const keyring = join(folder, 'keyring.gpg')
  const home = join(folder, 'gnupg')
  mkdirSync(home, { mode: 0o700 })
  const gpg = (...args: readonly string[]) =>
    execFileSync('gpg', ['--homedir', home, '--batch', '--quiet', '--passphrase', '', ...args], {
      stdio: 'pipe',
    })
  gpg('--quick-generate-key', 'mirror', 'ed25519', 'sign', 'never')
  gpg('--output', keyring, '--export', 'mirror')
  const server = createServer((request, response) => {
    try {
      response.end(readFileSync(join(files, decodeURIComponent(request.url ?? ''))))
    } catch {
      response.writeHead(404).end()
    }
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address() as AddressInfo
  return {
    url: `http://127.0.0.1:${port}`,
    keyring,
    publish(content) {
      rmSync(files, { recursive: true, force: true })
      const hashes: Record<string, readonly string[]> = {}
      for (const release of RELEASES) {
        const published = (content[release] ?? []).map((each) => publishPackage(files, folder, each))
        hashes[release] = published.map(({ hash }) => hash)
        const index = published.map(({ paragraph }) => paragraph).join('\n')
        const indexFolder = join(files, 'dists', release, 'main/binary-amd64')
        mkdirSync(indexFolder, { recursive: true })
        writeFileSync(join(indexFolder, 'Packages'), index)
        const plain = join(folder, 'Release')
        const sum = `${sha256(index)} ${Buffer.byteLength(index)} main/binary-amd64/Packages`
        // Debian marks its own backports so: apt prefers none of them by itself.
        const manual = release.endsWith('-backports') ? 'NotAutomatic: yes\nButAutomaticUpgrades: yes\n' : ''
        const head = `Origin: Debian\nSuite: ${release}\nCodename: ${release}\nComponents: main\nArchitectures: amd64\n`
        writeFileSync(plain, `${head}${manual}Date: ${new Date().toUTCString()}\nSHA256:\n ${sum}\n`)
        gpg('--output', join(files, 'dists', release, 'InRelease'), '--clearsign', plain)
      }
      return hashes
    },
    close() {
      server.close()
      execFileSync('gpgconf', ['--homedir', home, '--kill', 'gpg-agent'])
    },
  }
}

function publishPackage(files: string, folder: string, { name, version, glibc }: MirrorPackage) {
  const root = join(folder, 'package')
  rmSync(root, { recursive: true, force: true })
  const control = `Package: ${name}\nVersion: ${version}\nArchitecture: amd64\nMaintainer: x <x@example>\nDescription: x\n`
  mkdirSync(join(root, 'DEBIAN'), { recursive: true })
  writeFileSync(join(root, 'DEBIAN/control'), control)
  const program = { runc: 'usr/sbin/runc', crun: 'usr/bin/crun' }[name]
  if (program !== undefined) linkProgram(join(root, program), folder, glibc)
  mkdirSync(join(files, 'pool'), { recursive: true })
  const file = `pool/${name}_${version}_amd64.deb`
  execFileSync('dpkg-deb', ['--build', '-Znone', '--root-owner-group', root, join(files, file)], {
    stdio: 'pipe',
  })
  const bytes = readFileSync(join(files, file))
  const hash = sha256(bytes)
  return { paragraph: `${control}Filename: ${file}\nSize: ${bytes.length}\nSHA256: ${hash}\n`, hash }
}

/** Links a program with a libc.so.6 whose only symbol has this glibc version. */
function linkProgram(path: string, folder: string, glibc: string): void {
  const library = join(folder, 'libc.so.6')
  const [map, source, main] = ['map', 'library.c', 'main.c'].map((name) => join(folder, name))
  writeFileSync(map ?? '', `GLIBC_${glibc} { symbol; };\n`)
  writeFileSync(source ?? '', 'void symbol(void) {}\n')
  writeFileSync(main ?? '', 'void symbol(void); void _start(void) { symbol(); }\n')
  mkdirSync(join(path, '..'), { recursive: true })
  const shared = ['-shared', '-Wl,-soname,libc.so.6', `-Wl,--version-script,${map}`]
  execFileSync('gcc', ['-nostdlib', ...shared, '-o', library, source ?? ''])
  execFileSync('gcc', ['-nostdlib', '-o', path, main ?? '', library])
}

function sha256(content: string | Buffer): string {
  return createHash('sha256').update(content).digest('hex')
}
