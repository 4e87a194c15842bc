import { existsSync, mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { buildRoot } from '../build/project.ts'
import { tool } from '../build/tool.ts'

/** The Debian releases that packages can be fetched from; `trixie-backports` has trixie's security archive beside it. */
export type Suite = 'bookworm' | 'trixie' | 'trixie-backports' | 'forky' | 'sid'

/** An apt with one suite and with state of its own: it shares nothing with the machine's apt. */
export interface PrivateApt {
  readonly suite: Suite
  readonly folder: string
  /** Downloaded packages, by the file names that apt gives them. */
  readonly archives: string
  /** Runs apt-get or apt-cache with this configuration. A lock file makes concurrent runs wait for each other. */
  run(command: 'apt-get' | 'apt-cache', args: readonly string[], cwd?: string): Promise<string>
}

const KEYRING = '/usr/share/keyrings/debian-archive-keyring.gpg'

/** The folder of a suite's apt, which {@link openPrivateApt} creates. */
export function aptFolder(suite: Suite): string {
  return join(buildRoot, 'apt', suite)
}

/**
 * Writes apt's configuration for `suite`: the machine's mirror and proxy settings; lists, cache and an empty dpkg status
 * of its own. apt checks signatures with Debian's archive keyring. Throws when the machine has no Debian mirror or no
 * keyring.
 */
export async function openPrivateApt(suite: Suite): Promise<PrivateApt> {
  if (!existsSync(KEYRING))
    throw new Error(`${KEYRING}: not found, want it installed: apt-get install debian-archive-keyring`)
  const folder = aptFolder(suite)
  const archives = join(folder, 'archives')
  for (const name of [
    'lists/partial',
    'cache/archives/partial',
    'etc/preferences.d',
    'etc/parts',
    'archives',
  ])
    mkdirSync(join(folder, name), { recursive: true })
  const configuration = join(folder, 'apt.conf')
  writeFileSync(join(folder, 'status'), '')
  writeFileSync(join(folder, 'etc/sources.list'), await sourcesOf(suite))
  writeFileSync(configuration, `${ownSettings(folder)}\n${await transportSettings()}\n`)
  const env = { APT_CONFIG: configuration }
  return {
    suite,
    folder,
    archives,
    run: (command, args, cwd) =>
      tool('flock', ['--no-fork', join(folder, 'lock'), command, ...args], {
        env,
        debianPackage: 'util-linux apt',
        ...(cwd === undefined ? {} : { cwd }),
      }),
  }
}

/** Every setting that would use the machine's state or run its hooks refers to `folder`. */
function ownSettings(folder: string): string {
  const settings = {
    'Dir::State': folder,
    'Dir::State::lists': join(folder, 'lists'),
    'Dir::State::status': join(folder, 'status'),
    'Dir::Cache': join(folder, 'cache'),
    'Dir::Etc': join(folder, 'etc'),
    'Dir::Etc::parts': join(folder, 'etc/parts'),
    'APT::Architecture': 'amd64',
    'APT::Architectures': 'amd64',
    // The user _apt may not be able to write below a private home folder.
    'APT::Sandbox::User': 'root',
    'Acquire::Languages': 'none',
    'Acquire::Retries': '3',
  }
  return Object.entries(settings)
    .map(([key, value]) => `${key} "${value}";`)
    .join('\n')
}

/** The machine's proxies and certificates: its mirror may be unreachable without them. */
async function transportSettings(): Promise<string> {
  const all = await tool('apt-config', ['dump'], { debianPackage: 'apt' })
  return all
    .split('\n')
    .filter((line) => /^Acquire::https?::.*"[^"]+";$/.test(line))
    .join('\n')
}

async function sourcesOf(suite: Suite): Promise<string> {
  return sourcesList(await machineTargets(), suite)
}

/** The main archive among the machine's own mirrors; it has every suite. Throws when there is none. */
export async function debianArchive(): Promise<string> {
  return mainArchive(mainTargets(await machineTargets()))
}

function machineTargets(): Promise<string> {
  const format = '$(REPO_URI) $(RELEASE) $(COMPONENT)'
  return tool('apt-get', ['indextargets', '--format', format, 'Created-By: Packages'], {
    debianPackage: 'apt',
  })
}

/**
 * The sources.list of `suite` on the mirrors of `targets` (one `URI RELEASE COMPONENT` per line, as apt-get
 * indextargets prints them): the main archive, and its security archive where the suite has one.
 */
export function sourcesList(targets: string, suite: Suite): string {
  const mirrors = mainTargets(targets)
  const archive = mainArchive(mirrors)
  const line = (uri: string, release: string) =>
    `deb [arch=amd64 signed-by=${KEYRING}] ${uri} ${release} main\n`
  if (suite === 'sid') return line(archive, suite)
  const security = find(mirrors, /-security$/)
  return (
    line(archive, suite) +
    (security === undefined ? '' : line(security, `${suite.replace('-backports', '')}-security`))
  )
}

/** The fields of those `targets` that are of component main. */
function mainTargets(targets: string): readonly (readonly string[])[] {
  return targets
    .split('\n')
    .map((line) => line.split(' '))
    .filter((fields) => fields[2] === 'main')
}

function mainArchive(mirrors: readonly (readonly string[])[]): string {
  const archive = find(mirrors, /^(bookworm|trixie|forky|sid|stable|testing|unstable)$/)
  if (archive !== undefined) return archive
  throw new Error('/etc/apt/sources.list: no Debian archive, want main of bookworm or later')
}

/** The URI of the first mirror that has a release of this name. */
function find(mirrors: readonly (readonly string[])[], release: RegExp): string | undefined {
  return mirrors.find((fields) => release.test(fields[1] ?? ''))?.[0]
}
