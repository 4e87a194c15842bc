import { execFileSync } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import fc from 'fast-check'
import { beforeAll, describe, expect, it } from 'vitest'
import { AgentError } from '../../../src/base/errors.ts'
import { extractPackage, fetchPackages } from '../../../src/debian/packages.ts'
import { readDocument } from '../../../src/host/machine/document/document.ts'
import { parseYaml } from '../../../src/host/machine/document/parse-yaml.ts'
import { expand } from '../../../src/host/machine/expand.ts'
import { domainXml } from '../../../src/host/machine/libvirt/domain-xml.ts'
import { documents } from '../../support/host-wing/any-document.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

const EXAMPLE = join(import.meta.dirname, '../../fixtures/machines/kubevirt-vm.yaml')
const ANY_DOCUMENTS = 2000
const FETCH_MS = 180_000

describe("libvirt's schema of domains", () => {
  const folder = temporaryFolder()
  beforeAll(async () => {
    const packages = ['libvirt0', 'libxml2-utils']
    const fetched = await fetchPackages({ suite: 'bookworm', packages, progress: () => {} })
    for (const { path } of fetched) await extractPackage(path, folder)
  }, FETCH_MS)

  /** What virt-xml-validate does. Throws with what the schema does not accept. */
  function validate(texts: readonly string[]): void {
    const files = texts.map((text, index) => {
      const file = join(folder, `${index}.xml`)
      writeFileSync(file, text)
      return file
    })
    const schema = join(folder, 'usr/share/libvirt/schemas/domain.rng')
    execFileSync(join(folder, 'usr/bin/xmllint'), ['--noout', '--relaxng', schema, ...files], {
      stdio: 'pipe',
    })
  }

  it('accepts the example of the proposal', () => {
    const document = readDocument(parseYaml(readFileSync(EXAMPLE, 'utf8')))
    const xml = domainXml(expand(document, { isPrivileged: true }))
    expect(() => validate([xml])).not.toThrow()
  })

  it('refuses what is no domain', () => {
    expect(() => validate(['<domain type="kvm"><name>a</name><memory>1</memory><odd/></domain>'])).toThrow(
      'odd',
    )
  })

  it('accepts the machine of any document that libvirt has words for', () => {
    const texts = fc.sample(documents, ANY_DOCUMENTS).flatMap((value) => {
      try {
        return [domainXml(expand(readDocument(value), { isPrivileged: false }))]
      } catch (error) {
        expect(error).toBeInstanceOf(AgentError)
        return []
      }
    })
    expect(() => validate(texts)).not.toThrow()
    expect(texts.length).toBeGreaterThan(100)
  })
})
