import { existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs'
import { basename, join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { messageOf } from '../base/errors.ts'
import { temporaryRoot } from '../build/project.ts'
import { withTemporaryFolder } from '../build/temporary-folder.ts'
import { ToolFailure, tool } from '../build/tool.ts'
import { aptFolder, openPrivateApt, type PrivateApt, type Suite } from './apt.ts'

/** One version of a binary package, as a Debian archive's index describes it. */
export interface PackageVersion {
  readonly name: string
  readonly version: string
  readonly architecture: string
  /** Of the .deb file, in hexadecimal; apt checks every download against it. */
  readonly sha256: string
}

/** A downloaded package file whose signature chain apt has checked. */
export interface FetchedPackage extends PackageVersion {
  readonly suite: Suite
  /** The .deb file. */
  readonly path: string
}

/** What to fetch: `name` (the suite's newest) or `name=version`. */
export interface FetchRequest {
  readonly suite: Suite
  readonly packages: readonly string[]
  readonly progress: (line: string) => void
}

/** The result of each earlier request: repeating a request needs no network. */
type Resolved = Readonly<Record<string, PackageVersion & { readonly file: string }>>

/**
 * Downloads Debian packages without installing them and without touching the machine's apt. A version that the mirror no
 * longer carries is replaced by the newest, which `progress` reports. A repeated request is answered from disk. Throws
 * for a package that the suite does not have.
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
    return [{ ...version, suite: request.suite, path: join(folder, 'archives', file) }]
  })
}

/** Unpacks the files of a .deb into `folder` without running its scripts. */
export async function extractPackage(deb: string, folder: string): Promise<void> {
  mkdirSync(folder, { recursive: true })
  await tool('dpkg-deb', ['--extract', deb, folder], { debianPackage: 'dpkg' })
}

/** The newest version of each package in `suite`, after refreshing its lists. Throws for a package it does not have. */
export async function candidates(request: FetchRequest): Promise<readonly PackageVersion[]> {
  const apt = await refreshed(request)
  const stanzas = await versionsOf(apt, request.packages)
  return request.packages.map((name) => {
    const found = stanzas.find((stanza) => stanza.name === name)
    if (found === undefined) throw new Error(`Debian ${request.suite}: no package ${name}`)
    return found
  })
}

async function download(request: FetchRequest): Promise<Resolved> {
  const apt = await refreshed(request)
  const chosen = await choose(apt, request)
  const what = chosen.size > 3 ? `${chosen.size} packages` : [...chosen.keys()].join(' ')
  request.progress(`fetching ${what} of Debian ${request.suite}`)
  return await withTemporaryFolder(temporaryRoot, async (temporary) => {
    const exact = [...chosen.values()].map((version) => `${version.name}=${version.version}`)
    await apt.run('apt-get', ['--quiet', 'download', ...exact], temporary)
    const entries = [...chosen].map(([wanted, version]) => {
      const file = archiveName(version)
      renameSync(join(temporary, file), join(apt.archives, file))
      return [wanted, { ...version, file }] as const
    })
    return Object.fromEntries(entries)
  })
}

async function refreshed({ suite, progress }: FetchRequest): Promise<PrivateApt> {
  const apt = await openPrivateApt(suite)
  await readLists(apt, progress)
  return apt
}

/** The lists of a mirror that is being renewed do not fit together for some seconds, so that they are read once more. */
export async function readLists(
  { suite, run }: Pick<PrivateApt, 'suite' | 'run'>,
  progress: FetchRequest['progress'],
  pauseMs = 15_000,
): Promise<void> {
  progress(`reading the package lists of Debian ${suite}`)
  const update = ['--quiet', 'update', '--error-on=any']
  try {
    await run('apt-get', update)
  } catch (error) {
    const reason = messageOf(error)
    if (reason.includes('is expired')) {
      // The lists of a mirror that lags behind are signed too: only the newest versions may be missing.
      progress(
        `the mirror's lists of Debian ${suite} are past their date: using them, with their signatures checked`,
      )
      update.push('-o', 'Acquire::Check-Valid-Until=false')
    } else if (reason.includes('index files failed to download')) {
      progress(
        `the mirror's lists of Debian ${suite} are not whole: reading them again in ${pauseMs / 1000} s`,
      )
      await delay(pauseMs)
    } else throw error
    await run('apt-get', update)
  }
}

async function choose(apt: PrivateApt, request: FetchRequest): Promise<Map<string, PackageVersion>> {
  const names = request.packages.map((wanted) => nameOf(wanted))
  const all = await versionsOf(apt, names)
  const chosen = new Map<string, PackageVersion>()
  for (const wanted of request.packages) {
    const name = nameOf(wanted)
    const exact = all.find((stanza) => `${stanza.name}=${stanza.version}` === wanted)
    // apt-cache shows the newest version of a package first.
    const answer = exact ?? all.find((stanza) => stanza.name === name)
    if (answer === undefined) throw new Error(`Debian ${request.suite}: no package ${name}`)
    if (exact === undefined && wanted !== name)
      request.progress(`Debian ${request.suite} no longer has ${wanted}: using ${name}=${answer.version}`)
    chosen.set(wanted, answer)
  }
  return chosen
}

async function versionsOf(apt: PrivateApt, names: readonly string[]): Promise<readonly PackageVersion[]> {
  try {
    return parseStanzas(await apt.run('apt-cache', ['show', ...names]))
  } catch (error) {
    // apt-cache fails only when it knows none of the names; the caller reports the missing ones.
    if (messageOf(error).includes('No packages found')) return []
    throw error
  }
}

/** Reads the output of `apt-cache show`: paragraphs of `Key: value`; continuation lines are ignored. */
export function parseStanzas(text: string): readonly PackageVersion[] {
  return text
    .split(/\n\n+/)
    .filter((paragraph) => paragraph.trim() !== '')
    .map((paragraph) => {
      const field = (key: string) => {
        const value = paragraph.match(new RegExp(`^${key}: (.*)$`, 'm'))?.[1]
        if (value === undefined)
          throw new Error(`package description "${paragraph.slice(0, 80)}": no field ${key}`)
        return value
      }
      return {
        name: field('Package'),
        version: field('Version'),
        architecture: field('Architecture'),
        sha256: field('SHA256'),
      }
    })
}

/** The file name that apt-get download gives a package: the colon of an epoch is escaped. */
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

/** Whether a version of a Debian package is newer than `other` (deb-version(7)). No version is older than any. */
export async function isNewer(version = '', other = ''): Promise<boolean> {
  try {
    await tool('dpkg', ['--compare-versions', version, 'gt', other], { debianPackage: 'dpkg' })
    return true
  } catch (error) {
    if (error instanceof ToolFailure && error.stderr === '') return false
    throw error
  }
}
