import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { readDocument } from '../../../src/host/machine/document/document.ts'
import { parseYaml } from '../../../src/host/machine/document/parse-yaml.ts'
import { expand } from '../../../src/host/machine/expand.ts'
import { domainXml } from '../../../src/host/machine/libvirt/domain-xml.ts'
import { xmlFields } from '../../support/host-wing/xml-fields.ts'

const ROOT = join(import.meta.dirname, '../../..')
const read = (path: string) => readFileSync(join(ROOT, path), 'utf8')

const machine = expand(readDocument(parseYaml(read('test/fixtures/machines/kubevirt-vm.yaml'))), {
  isPrivileged: true,
})
const wanted = xmlFields(read('test/fixtures/machines/kubevirt-domain.xml'))
const given = xmlFields(domainXml(machine))

/** The rows of the table of differences: the field, its value in the proposal and here. A `*` stands for any text. */
const documented = [
  ...read('docs/reference/kubevirt-example.md').matchAll(/^\| `([^`]+)` \| (.+?) \| (.+?) \| [^|]+ \|$/gm),
]
  .map(([, ...cells]) => cells.map((cell = '') => cell.replaceAll('`', '')))
  .filter(([path = '']) => /[@/]|^uuid$/.test(path))

function matches(row: readonly string[], found: readonly string[]): boolean {
  return row.every((cell, index) => {
    const value = found[index] ?? ''
    if (index > 0) return cell === '…' ? value !== '–' : cell === value
    const pattern = cell.replace(/[.+?^${}()|[\]\\]/g, '\\$&').replaceAll('*', '.*')
    return new RegExp(`^${pattern}$`).test(value)
  })
}

describe("the example of KubeVirt's proposal", () => {
  it('is the machine of its XML in every field but those that docs/reference/kubevirt-example.md lists', () => {
    const paths = [...new Set([...wanted.keys(), ...given.keys()])]
    const different = paths
      .filter((path) => wanted.get(path) !== given.get(path))
      .map((path) => [path, wanted.get(path) ?? '–', given.get(path) ?? '–'])
    expect(different.filter((found) => !documented.some((row) => matches(row, found)))).toEqual([])
    expect(documented.filter((row) => !different.some((found) => matches(row, found)))).toEqual([])
    expect(wanted.size).toBeGreaterThan(100)
  })

  it('keeps all addresses of the XML', () => {
    const addresses = [...wanted.keys()].filter((path) => path.includes('/address@'))
    expect(addresses.map((path) => [path, given.get(path)])).toEqual(
      addresses.map((path) => [path, wanted.get(path)]),
    )
    expect(addresses.length).toBeGreaterThan(30)
  })
})
