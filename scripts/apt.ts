import { existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs'
import { basename, join } from 'node:path'
import { messageOf } from '../src/base/errors.ts'
import { temporaryRoot } from '../src/build/project.ts'
import { withTemporaryFolder } from '../src/build/temporary-folder.ts'
import { tool } from '../src/build/tool.ts'
import { type AptWorld, aptFolder, openAptWorld, type Suite } from './apt/configuration.ts'
import { type PackageVersion, parseStanzas } from './apt/stanzas.ts'

/** A package file that was downloaded and whose signature chain was checked. */
export interface FetchedPackage extends PackageVersion {
  /** The .deb file. */
  readonly path: string
}

/** What to fetch: `name` (the suite's candidate) or `name=version`. */
export interface FetchRequest {
  readonly suite: Suite
  readonly packages: readonly string[]
  readonly progress: (line: string) => void
}

/** What each request came to, kept so that asking again needs no network. */
type Resolved = Readonly<Record<string, PackageVersion & { readonly file: string }>>

/**
 * Downloads Debian packages without installing them and without touching the machine's apt. A version that the
 * mirror no longer carries is replaced by the candidate, and `progress` says so. A request that was answered
 * before is answered from disk. Throws for a package that the suite does not have.
 */
export async function fetchPackages(request: FetchRequest): Promise<readonly FetchedPackage[]> {
  const folder = aptFolder(request.suite)
  const known = readResolved(folder)
  const missing = request.packages.filter((wanted) => !isPresent(folder, known, wanted))
  const fetched = missing.length === 0 ? {} : await download({ ...request, packages: missing })
  const all = { ...known, ...fetched }
  if (missing.length > 0) writeResolved(folder, { ...readResolved(folder), ...fetched })
  return request.packages.flatMap((wanted) => {
    const found = all[wanted]
    if (found === undefined) return []
    const { file, ...version } = found
    return [{ ...version, path: join(folder, 'archives', file) }]
  })
}

/** Unpacks the files of a .deb into `folder`, running none of its scripts. */
export async function extractPackage(deb: string, folder: string): Promise<void> {
  mkdirSync(folder, { recursive: true })
  await tool('dpkg-deb', ['--extract', deb, folder], { debianPackage: 'dpkg' })
}

/** The newest version that `suite` has of each package, after refreshing its lists. */
export async function candidates(request: FetchRequest): Promise<readonly PackageVersion[]> {
  const world = await refreshed(request)
  const stanzas = await versionsOf(world, request.packages, ['--no-all-versions'])
  return request.packages.map((name) => {
    const found = stanzas.find((stanza) => stanza.name === name)
    if (found === undefined) throw new Error(`Debian ${request.suite} has no package ${name}`)
    return found
  })
}

async function download(request: FetchRequest): Promise<Resolved> {
  const world = await refreshed(request)
  const chosen = await choose(world, request)
  const what = chosen.size > 3 ? `${chosen.size} packages` : [...chosen.keys()].join(' ')
  request.progress(`fetching ${what} of Debian ${request.suite}`)
  return await withTemporaryFolder(temporaryRoot, async (temporary) => {
    const exact = [...chosen.values()].map((version) => `${version.name}=${version.version}`)
    await world.run('apt-get', ['--quiet', 'download', ...exact], temporary)
    const entries = [...chosen].map(([wanted, version]) => {
      const file = archiveName(version)
      renameSync(join(temporary, file), join(world.archives, file))
      return [wanted, { ...version, file }] as const
    })
    return Object.fromEntries(entries)
  })
}

async function refreshed({ suite, progress }: FetchRequest): Promise<AptWorld> {
  const world = await openAptWorld(suite)
  progress(`reading the package lists of Debian ${suite}`)
  const update = ['--quiet', 'update', '--error-on=any']
  try {
    await world.run('apt-get', update)
  } catch (error) {
    if (!messageOf(error).includes('is expired')) throw error
    // A mirror that lags behind is signed all the same; what may be missing are the newest versions.
    progress(`the mirror's lists of Debian ${suite} are past their date: using them as they are`)
    await world.run('apt-get', [...update, '-o', 'Acquire::Check-Valid-Until=false'])
  }
  return world
}

/** Which version answers each request: the exact one, else the candidate. */
async function choose(world: AptWorld, request: FetchRequest): Promise<Map<string, PackageVersion>> {
  const names = request.packages.map((wanted) => nameOf(wanted))
  const all = await versionsOf(world, names, [])
  const newest = await versionsOf(world, names, ['--no-all-versions'])
  const chosen = new Map<string, PackageVersion>()
  for (const wanted of request.packages) {
    const name = nameOf(wanted)
    const exact = all.find((stanza) => `${stanza.name}=${stanza.version}` === wanted)
    const candidate = newest.find((stanza) => stanza.name === name)
    const answer = exact ?? candidate
    if (answer === undefined) throw new Error(`Debian ${request.suite} has no package ${name}`)
    if (exact === undefined && wanted !== name)
      request.progress(`Debian ${request.suite} no longer has ${wanted}: using ${name}=${answer.version}`)
    chosen.set(wanted, answer)
  }
  return chosen
}

async function versionsOf(
  world: AptWorld,
  names: readonly string[],
  options: readonly string[],
): Promise<readonly PackageVersion[]> {
  try {
    return parseStanzas(await world.run('apt-cache', ['show', ...options, ...names]))
  } catch (error) {
    // apt-cache fails only when it knows none of the names; the caller says which it wanted.
    if (messageOf(error).includes('No packages found')) return []
    throw error
  }
}

/** The file name that apt-get download gives a package: an epoch's colon is escaped. */
function archiveName({ name, version, architecture }: PackageVersion): string {
  return `${name}_${version.replaceAll(':', '%3a')}_${architecture}.deb`
}

function nameOf(wanted: string): string {
  return wanted.split('=')[0] ?? wanted
}

function isPresent(folder: string, known: Resolved, wanted: string): boolean {
  const found = known[wanted]
  return found !== undefined && existsSync(join(folder, 'archives', basename(found.file)))
}

function readResolved(folder: string): Resolved {
  const path = join(folder, 'resolved.json')
  return existsSync(path) ? JSON.parse(readFileSync(path, 'utf8')) : {}
}

function writeResolved(folder: string, resolved: Resolved): void {
  const temporary = join(folder, `resolved.json.${process.pid}`)
  writeFileSync(temporary, `${JSON.stringify(resolved, undefined, 2)}\n`)
  renameSync(temporary, join(folder, 'resolved.json'))
}
