import { copyFileSync, existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { homedir } from 'node:os'
import { join } from 'node:path'
import { messageOf } from '../base/errors.ts'
import { cached } from '../build/cache.ts'
import { buildRoot, projectRoot, temporaryRoot } from '../build/project.ts'
import { withTemporaryFolder } from '../build/temporary-folder.ts'
import { tool } from '../build/tool.ts'
import type { PackageVersion } from '../debian/packages.ts'
import { fetchLocked, lockedVersions } from './packages.ts'
import { fetchRust, rustPackages, unpackRust } from './rust.ts'

const source = join(projectRoot, 'native/policy')
const lockFile = join(source, 'Cargo.lock')

type Progress = (line: string) => void

/** policy.node, and what it is made of. */
export interface PolicyAddon {
  readonly path: string
  /** A folder with a licence text for each crate, and for the standard library. */
  readonly licences: string
  /** The crates that are linked into it. */
  readonly crates: readonly Crate[]
  /** The Debian package whose standard library of Rust is linked into it. */
  readonly standardLibrary: PackageVersion
}

export interface Crate {
  readonly name: string
  readonly version: string
  /** An SPDX expression. */
  readonly license: string
  /** Of its archive, in hexadecimal. */
  readonly sha256: string
}

/** The compiler or the crates cannot be fetched. */
export class UnreachableSources extends Error {}

/**
 * policy.node of native/policy, built with Debian's Rust, which is unpacked and not installed: an earlier result for the
 * same sources and lock files, or a new one, which takes minutes. Throws {@link UnreachableSources} without a network.
 */
export async function ensurePolicyAddon(progress: Progress): Promise<PolicyAddon> {
  const inputs = { files: [source, import.meta.filename], values: lockedVersions(rustPackages) }
  const folder = await cached('policy-addon', inputs, async (target) => {
    const packages = await fetched(fetchRust((names) => fetchLocked('bookworm', names, progress)))
    await withTemporaryFolder(temporaryRoot, async (work) => {
      const environment = await unpackRust(packages, join(work, 'rust'))
      await build({ environment, target, progress })
      const copyright = join(work, 'rust/usr/share/doc', STANDARD_LIBRARY, 'copyright')
      copyFileSync(copyright, join(target, 'licences', `${STANDARD_LIBRARY}.txt`))
    })
    for (const { name, version, architecture, sha256 } of packages) {
      if (name !== STANDARD_LIBRARY) continue
      writeFileSync(
        join(target, 'standard-library.json'),
        JSON.stringify({ name, version, architecture, sha256 }),
      )
    }
  })
  const json = (name: string) => JSON.parse(readFileSync(join(folder, name), 'utf8'))
  return {
    path: join(folder, 'policy.node'),
    licences: join(folder, 'licences'),
    crates: json('crates.json'),
    standardLibrary: json('standard-library.json'),
  }
}

async function fetched<T>(work: Promise<T>): Promise<T> {
  try {
    return await work
  } catch (error) {
    throw new UnreachableSources(`policy.node: ${messageOf(error)}`, { cause: error })
  }
}

interface Build {
  readonly environment: Readonly<Record<string, string>>
  readonly target: string
  readonly progress: Progress
}

async function build({ environment, target, progress }: Build): Promise<void> {
  const cargo = cargoIn(environment)
  progress('fetching the crates of policy.node')
  await fetched(cargo(['fetch', '--locked', '--target', TARGET]))
  progress('building policy.node (once, some minutes)')
  await cargo(['build', '--release', '--locked', '--offline'])
  copyFileSync(join(cargoTarget, 'release/libpolicy.so'), join(target, 'policy.node'))
  const crates = await linkedCrates(cargo)
  writeFileSync(join(target, 'crates.json'), `${JSON.stringify(crates, undefined, 2)}\n`)
  copyLicences(crates, join(target, 'licences'))
}

const TARGET = 'x86_64-unknown-linux-gnu'
const STANDARD_LIBRARY = 'libstd-rust-web-dev'
const cargoHome = process.env.CARGO_HOME ?? join(homedir(), '.cargo')
/** What cargo has compiled: after a change of the project's own source, the crates are not compiled again. */
const cargoTarget = join(buildRoot, 'cargo')

function cargoIn(environment: Build['environment']): Cargo {
  // The same bytes in every folder: a panic names its source file.
  const paths = { [cargoHome]: '/cargo', [projectRoot]: '/microvm-agent' }
  const flags = Object.entries(paths).map(([from, to]) => `--remap-path-prefix=${from}=${to}`)
  const env = {
    ...environment,
    CARGO_TARGET_DIR: cargoTarget,
    CARGO_ENCODED_RUSTFLAGS: flags.join('\x1f'),
    // One of the machine's would be for its own Rust.
    RUSTC_WRAPPER: '',
    CARGO_TERM_QUIET: 'true',
  }
  return (args) => tool('cargo', args, { cwd: source, env, debianPackage: 'util-linux' })
}

type Cargo = (args: readonly string[]) => Promise<string>

/** The crates in the addon without those that only run while it is built. */
async function linkedCrates(cargo: Cargo): Promise<readonly Crate[]> {
  const options = ['--locked', '--offline', '--target', TARGET, '--edges', 'normal,no-proc-macro']
  const tree = await cargo(['tree', ...options, '--prefix', 'none', '--no-dedupe', '--format', '{p}|{l}'])
  const checksums = lockedCrates(readFileSync(lockFile, 'utf8'))
  // "regorus v0.14.1|MIT". The line of the addon itself is skipped: a folder follows its version.
  const crates = [...new Set(tree.split('\n'))].flatMap((line) => {
    const [whole, name = '', version = '', license = ''] = /^(\S+) v(\S+)\|(.+)$/.exec(line) ?? []
    if (whole === undefined) return []
    const sha256 = checksums.get(`${name} ${version}`)
    if (sha256 === undefined) throw new Error(`${lockFile}: no ${name} ${version}`)
    return [{ name, version, license, sha256 }]
  })
  return crates.sort((a, b) => (a.name < b.name ? -1 : 1))
}

function lockedCrates(lock: string): ReadonlyMap<string, string> {
  const found = lock.matchAll(/^name = "(.*)"\nversion = "(.*)"\nsource = .*\nchecksum = "(.*)"$/gm)
  return new Map([...found].map(([, name, version, checksum = '']) => [`${name} ${version}`, checksum]))
}

/** One text for each crate: its name and licence, and the licence files in its archive. */
function copyLicences(crates: readonly Crate[], folder: string): void {
  mkdirSync(folder)
  const registries = join(cargoHome, 'registry/src')
  const unpacked = readdirSync(registries).map((name) => join(registries, name))
  for (const { name, version, license } of crates) {
    const crate = unpacked.map((registry) => join(registry, `${name}-${version}`)).find(existsSync)
    if (crate === undefined) throw new Error(`${registries}: no ${name}-${version}`)
    const texts = readdirSync(crate)
      .filter((file) => /^(licen[cs]e|copying|notice)/i.test(file))
      .sort()
      .map((file) => `\n${readFileSync(join(crate, file), 'utf8')}`)
    writeFileSync(join(folder, `${name}-${version}.txt`), `${name} ${version}: ${license}\n${texts.join('')}`)
  }
}
