import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { beforeEach, describe, expect, it } from 'vitest'
import { parse } from 'yaml'
import { microvm } from '../../support/microvm/run-microvm.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

const DOCUMENT = 'kind: VM\nmetadata:\n  name: web\nspec:\n  features:\n    memory: 512\n'

describe('the commands for documents of machines', () => {
  let folder: string
  beforeEach(() => {
    folder = temporaryFolder()
  })

  function file(name: string, text: string): string {
    const path = join(folder, name)
    writeFileSync(path, text)
    return path
  }

  it('expand prints the whole machine, as YAML or as one line of JSON', async () => {
    const document = file('vm.yaml', DOCUMENT)
    const { status, stderr, stdout } = await microvm(['expand', document])
    expect([status, stderr]).toEqual([0, ''])
    expect(parse(stdout)).toMatchObject({ kind: 'Machine', name: 'web', memory: { sizeMib: 512 } })
    const json = await microvm(['expand', '--json', '-'], { stdin: DOCUMENT })
    expect(json.stdout.split('\n')).toHaveLength(2)
    expect(JSON.parse(json.stdout)).toEqual(parse(stdout))
  })

  it.each([
    ['memory: 512', 'memroy: 512', 'spec.features.memroy: unknown field, did you mean "memory"?'],
    ['kind: VM', 'kind: VM\nkind: VM', 'document: key "kind" twice at line 2, column 1'],
  ])('expand refuses %j as %j by the path of the field', async (before, after, reason) => {
    const document = file('vm.yaml', DOCUMENT.replace(before, after))
    expect(await microvm(['expand', document])).toEqual({
      ...{ status: 2, stdout: '', stderr: `microvm: ${document}: ${reason}\n` },
    })
  })

  it('expand --tenant refuses the part `domain`', async () => {
    const document = file('vm.yaml', `${DOCUMENT}  domain:\n    iothreads: 1\n`)
    expect((await microvm(['expand', document])).status).toBe(0)
    const refused = await microvm(['expand', '--tenant', document])
    expect(refused).toMatchObject({
      status: 2,
      stderr: expect.stringContaining('spec.domain: only for the administrator'),
    })
  })

  it("expand --as libvirt prints libvirt's domain, or says what it has no words for", async () => {
    const { status, stdout } = await microvm(['expand', '--as', 'libvirt', file('vm.yaml', DOCUMENT)])
    expect([status, stdout.split('\n')[0]]).toEqual([0, '<domain type="kvm">'])
    const other = file('other.yaml', DOCUMENT.replace('memory: 512', 'machine: microvm'))
    const refused = await microvm(['expand', '--as', 'libvirt', other])
    expect(refused).toMatchObject({
      status: 2,
      stderr: expect.stringContaining('--as libvirt: board.machine: libvirt'),
    })
    const unknown = await microvm(['expand', '--as', 'xen', other])
    expect(unknown).toMatchObject({ status: 2, stderr: 'microvm: --as xen: unknown, want libvirt\n' })
  })

  it('expand takes TOML, which is the same document', async () => {
    const toml = file('vm.toml', 'kind = "VM"\nmetadata.name = "web"\n[spec.features]\nmemory = 512\n')
    const yaml = await microvm(['expand', file('vm.yaml', DOCUMENT)])
    expect(await microvm(['expand', toml])).toEqual(yaml)
    const wrong = file('wrong.toml', 'kind = "VM"\nkind = "VM"\n')
    const refused = await microvm(['expand', wrong])
    expect(refused).toMatchObject({ status: 2, stderr: expect.stringMatching(/wrong\.toml: .*already.*\n$/) })
  })

  it('diff compares a document with what expand has printed', async () => {
    const before = file('machine.yaml', (await microvm(['expand', file('vm.yaml', DOCUMENT)])).stdout)
    expect(await microvm(['diff', before, join(folder, 'vm.yaml')])).toEqual({
      status: 0,
      stdout: '',
      stderr: '',
    })
    const after = file('other.yaml', DOCUMENT.replace('512', '513'))
    const found = await microvm(['diff', before, after])
    expect(found.status).toBe(1)
    expect(found.stdout.split('\n')).toEqual([
      ...['memory.currentMib: 512 → 513', 'memory.maximumMib: 2048 → 2052', 'memory.sizeMib: 512 → 513', ''],
    ])
    const [line = ''] = (await microvm(['diff', '--json', before, after])).stdout.split('\n')
    expect(JSON.parse(line)).toEqual({ path: 'memory.currentMib', before: 512, after: 513 })
  })

  it('diff refuses a machine of a later version', async () => {
    const written = (await microvm(['expand', file('vm.yaml', DOCUMENT)])).stdout.replace(
      'microvm/v1',
      'microvm/v2',
    )
    const { status, stderr } = await microvm(['diff', file('machine.yaml', written), join(folder, 'vm.yaml')])
    expect(status).toBe(2)
    expect(stderr).toContain('apiVersion: "microvm/v2", did you mean "microvm/v1"?')
  })
})
