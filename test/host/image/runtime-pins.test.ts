import { execFile } from 'node:child_process'
import { appendFileSync, copyFileSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { buildRoot, projectRoot } from '../../../src/build/project.ts'
import { guestPackages } from '../../../src/image/userland.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import { type DebianMirror, debianMirror, type MirrorContent } from './debian-mirror.ts'

const KEYRING = '/usr/share/keyrings/debian-archive-keyring.gpg'

/** Chooses packages as `npm run image` does; prints the runtimes. */
const CHOOSE = `
  const { guestPackages } = await import(process.argv[1] + '/userland.ts')
  const { checkRuntimes } = await import(process.argv[1] + '/check-runtimes.ts')
  const lines = []
  const packages = await guestPackages((line) => lines.push(line))
  checkRuntimes(packages, (line) => lines.push(line))
  const runtimes = packages.filter(({ name }) => name === 'runc').map(({ version, suite }) => version + ' ' + suite)
  console.log(JSON.stringify({ runtimes, lines: lines.filter((line) => /runc .*(taken|runs|: containers)|no (runc|longer has runc)/.test(line)) }))
`

/**
 * Runs the program on a disposable upper layer of the build folder, without forky's packages and cached results, and with
 * another keyring in place of Debian's.
 */
const IN_NAMESPACE = `
  mount -t tmpfs none "$1" && mkdir "$1/upper" "$1/work"
  mount -t overlay none -o "lowerdir=$2,upperdir=$1/upper,workdir=$1/work" "$2"
  rm -rf "$2/apt/forky" "$2/apt/sid" "$2/apt/trixie-backports" "$2"/cache/runtime-lack-*
  mount --bind "$3" ${KEYRING}
  for file in packages packages.lock.json; do mount --bind "$4/$file" "$5/$file"; done
  exec "$6" --input-type=module --eval "$7" "$8"
`

let folder: string
let mirror: DebianMirror
beforeAll(async () => {
  await guestPackages((line) => process.stderr.write(`${line}\n`))
  folder = temporaryFolder()
  mkdirSync(join(folder, 'upper'))
  mkdirSync(join(folder, 'lists/partial'), { recursive: true })
  mirror = await debianMirror(folder)
  const signed = `deb [signed-by=${mirror.keyring}] ${mirror.url}`
  writeFileSync(join(folder, 'sources.list'), `${signed} trixie main\n${signed} trixie-security main\n`)
  const settings = `Dir::Etc::sourcelist "${folder}/sources.list"; Dir::Etc::sourceparts "/dev/null";\n`
  const lists = `Dir::State::lists "${folder}/lists"; Acquire::http::Proxy "DIRECT";\n`
  writeFileSync(join(folder, 'apt.conf'), `${settings}${lists}APT::Sandbox::User "root";\n`)
  // Non-empty lists tell apt the mirrors.
  mirror.publish({ trixie: OWN, 'trixie-security': OWN })
  await promisify(execFile)('apt-get', ['update'], { env: environment() })
}, 600_000)
afterAll(() => mirror?.close())

const environment = () => ({ ...process.env, APT_CONFIG: join(folder, 'apt.conf') })

/**
 * Returns the choice from a mirror with this content; `lock` locks the runc of a release and names it in rootfs/packages.
 */
async function choose(content: MirrorContent, lock?: 'trixie' | 'forky') {
  const hashes = mirror.publish(content)
  const rootfs = join(projectRoot, 'rootfs')
  for (const name of ['packages', 'packages.lock.json']) copyFileSync(join(rootfs, name), join(folder, name))
  if (lock !== undefined) {
    const path = join(folder, 'packages.lock.json')
    const locked = JSON.parse(readFileSync(path, 'utf8'))
    const [runc] = content[lock] ?? []
    locked[lock].runc = { version: runc?.version, sha256: hashes[lock]?.[0] }
    writeFileSync(path, JSON.stringify(locked))
    if (lock === 'trixie') appendFileSync(join(folder, 'packages'), 'runc\n')
  }
  const image = join(projectRoot, 'src/image')
  const files = [join(folder, 'upper'), buildRoot, mirror.keyring, folder, rootfs]
  const words = [...files, process.execPath, CHOOSE, image]
  const { stdout } = await promisify(execFile)(
    'unshare',
    ['--mount', '--propagation', 'private', 'sh', '-ec', IN_NAMESPACE, 'sh', ...words],
    { env: environment() },
  )
  return JSON.parse(stdout)
}

const runc = (version: string, glibc = '2.34') => [{ name: 'runc', version, glibc }]
const OWN = runc('1.1.15+ds1-2')
const TOO_NEW = runc('1.4.2+ds1-1', '2.99')
const FORKY_TOO_NEW = 'runc of Debian forky is not taken: it needs glibc 2.99, and the image has 2.41'

describe('an image, when the mirror no longer has the locked runc,', () => {
  it('has the newest of forky', async () => {
    const forky = [...runc('1.3.7+ds1-1'), ...runc('1.4.1+ds1-1')]
    expect(await choose({ forky, 'trixie-backports': runc('1.3.9+ds1-1~bpo13+1'), trixie: OWN })).toEqual({
      runtimes: ['1.4.1+ds1-1 forky'],
      lines: ['Debian forky no longer has runc=1.3.6+ds1-1: using runc=1.4.1+ds1-1'],
    })
  })

  it("has the one of Debian 13's backports when it is newer, or forky's does not run in the image", async () => {
    const backports = { 'trixie-backports': runc('1.4.1+ds1-1~bpo13+1'), trixie: OWN }
    expect(await choose({ forky: runc('1.3.9+ds1-1'), ...backports })).toMatchObject({
      runtimes: ['1.4.1+ds1-1~bpo13+1 trixie-backports'],
    })
    const { runtimes, lines } = await choose({ forky: TOO_NEW, ...backports })
    expect(runtimes).toEqual(['1.4.1+ds1-1~bpo13+1 trixie-backports'])
    expect(lines).toContain(FORKY_TOO_NEW)
  })

  it("has the one of Debian 13's security archive when it is newer than its backport", async () => {
    const content = { 'trixie-security': runc('1.3.8+deb13u1'), 'trixie-backports': runc('1.3.7~bpo13+1') }
    expect(await choose({ ...content, trixie: OWN })).toMatchObject({
      runtimes: ['1.3.8+deb13u1 trixie-backports'],
    })
  })

  it('has the one of sid when no other runs in the image or all others have a known break-out', async () => {
    const others = { forky: TOO_NEW, 'trixie-backports': runc('1.3.2~bpo13+1'), trixie: OWN }
    const { runtimes, lines } = await choose({ ...others, sid: runc('1.4.3+ds1-1') })
    expect(runtimes).toEqual(['1.4.3+ds1-1 sid'])
    expect(lines).toContain(FORKY_TOO_NEW)
    expect(lines).toContain(
      'runc of Debian trixie-backports is not taken: 1.3.2~bpo13+1 is open to CVE-2025-31133',
    )
  })

  it("has Debian 13's own, with a warning, when there is no other", async () => {
    const { runtimes, lines } = await choose({ forky: TOO_NEW, sid: TOO_NEW, trixie: OWN })
    expect(runtimes).toEqual(['1.1.15+ds1-2 trixie'])
    expect(lines.slice(-2)).toEqual([
      "warning: no newer runc runs in the image: taking Debian 13's",
      'warning: runc 1.1.15+ds1-2: containers can break out of it by CVE-2025-31133, CVE-2025-52565, CVE-2025-52881',
    ])
  })

  it('has none, with a warning, when Debian has none', async () => {
    const { runtimes, lines } = await choose({})
    expect(runtimes).toEqual([])
    expect(lines).toContain('warning: the image has no runc')
  })
})

describe('an image whose runc is locked', () => {
  it.each([
    ['forky', '1.3.2+ds1-1'],
    ['trixie', '1.1.15+ds1-2'],
  ] as const)('is refused when containers can break out of it: of %s', async (release, version) => {
    const content = { forky: runc('1.3.6+ds1-1'), trixie: OWN, [release]: runc(version) }
    await expect(choose(content, release)).rejects.toThrow(
      `Error: runc ${version}: containers can break out of it by CVE-2025-31133, CVE-2025-52565, CVE-2025-52881, want`,
    )
  })
})
