import { execFile, execFileSync } from 'node:child_process'
import { existsSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { Spec, Validation } from '@cyclonedx/cyclonedx-library'
import { parse } from 'smol-toml'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { projectRoot } from '../../../src/build/project.ts'
import { makeTemporaryFolder, removeTemporaryFolder } from '../../../src/build/temporary-folder.ts'
import { LAYOUT } from '../../../src/image/formats/partitioned-image.ts'
import { noPolicyAddon } from '../../support/os/policy-addon.ts'

/** The first run compresses the all-in-one initrd: a minute, more on a busy machine. */
const FIRST_RUN_MS = 900_000

const run = promisify(execFile)
const command = (...args: readonly string[]) =>
  run(process.execPath, [join(projectRoot, 'scripts/image.ts'), ...args])

let folder: string
let output: string

// The images of this command have policy.node.
const skipped = (await noPolicyAddon()) !== undefined

beforeAll(async () => {
  if (skipped) return
  folder = makeTemporaryFolder(tmpdir())
  output = (await command('--out', folder, '--install-path', '/opt/guest', '--json')).stdout
}, FIRST_RUN_MS)
afterAll(() => {
  if (!skipped) removeTemporaryFolder(folder)
})

const file = (name: string) => join(folder, name)
const start = (name: string, offset: number, length: number) =>
  readFileSync(file(name))
    .subarray(offset, offset + length)
    .toString('hex')

describe.skipIf(skipped)('npm run image', () => {
  it('prints the files that it wrote, and nothing else, as JSON', () => {
    const { folder: written, files } = JSON.parse(output)
    expect(written).toBe(folder)
    expect(files.map(({ name }: { readonly name: string }) => name).sort()).toEqual(
      readdirSync(folder).sort(),
    )
    for (const { name, bytes } of files) expect(statSync(file(name)).size, name).toBe(bytes)
  })

  it('writes a kernel, two initrds, and the root disk with and without partitions', () => {
    // "HdrS" of a bzImage, "070701" of cpio, the magic numbers of zstd, erofs and a partition table.
    expect(start('vmlinuz', 0x202, 4)).toBe('48647253')
    expect(start('initrd-stage-one.img', 0, 6)).toBe('303730373031')
    expect(start('initrd.img', 0, 4)).toBe('28b52ffd')
    expect(start('root.erofs', 1024, 4)).toBe('e2e1f5e0')
    expect(start('root.img', 510, 2)).toBe('55aa')
    expect(start('root.img', LAYOUT.root + 1024, 4)).toBe('e2e1f5e0')
  })

  it('writes checksums of all other files, which sha256sum accepts', () => {
    const lines = execFileSync('sha256sum', ['--check', '--strict', 'SHA256SUMS'], {
      cwd: folder,
      encoding: 'utf8',
    })
    const checked = lines.trim().split('\n')
    expect(checked.every((line) => line.endsWith(': OK'))).toBe(true)
    expect(checked.map((line) => line.replace(': OK', '')).sort()).toEqual(
      readdirSync(folder)
        .filter((name) => name !== 'SHA256SUMS')
        .sort(),
    )
  })

  it('writes only files that docs/kata.md explains', () => {
    const page = readFileSync(join(projectRoot, 'docs/kata.md'), 'utf8')
    expect(readdirSync(folder).filter((name) => !page.includes(`\`${name}\``))).toEqual([])
  })

  it('writes a bill of materials with the locked Debian packages and this kernel', async () => {
    const text = readFileSync(file('sbom.cdx.json'), 'utf8')
    expect(await new Validation.JsonStrictValidator(Spec.Version.v1dot6).validate(text)).toBeNull()
    const names = JSON.parse(text).components.map(({ name }: { readonly name: string }) => name)
    const listed = readFileSync(join(projectRoot, 'rootfs/packages'), 'utf8')
      .split('\n')
      .filter((line) => /^\w/.test(line))
    expect(names).toEqual(expect.arrayContaining([...listed, 'node', 'smol-toml']))
    expect(names).toEqual(expect.arrayContaining(['regorus', 'serde_json', 'libstd-rust-web-dev']))
    expect(names.filter((name: string) => /^linux-image-.*-cloud-amd64$/.test(name))).toHaveLength(1)
  })

  it.each(['go', 'rs'])('writes a snippet for Kata that names files of this folder: %s', (runtime) => {
    const text = readFileSync(file(`configuration-microvm-agent-${runtime}.toml`), 'utf8')
    expect(parse(text)).toMatchObject({
      hypervisor: { qemu: { kernel: '/opt/guest/vmlinuz', initrd: '/opt/guest/initrd.img', image: '' } },
    })
    const names = [...text.matchAll(/^[^#\n]*"\/opt\/guest\/([^"]+)"/gm)].map(([, name = '']) => name)
    expect(readdirSync(folder)).toEqual(expect.arrayContaining(names))
  })

  it('writes the same bytes again, and removes what an earlier run wrote besides', async () => {
    writeFileSync(file('vmlinuz-built-in'), 'of an earlier run with --kernel')
    const again = await command('--out', folder, '--install-path', '/opt/guest', '--json')
    expect(again.stdout).toBe(output)
    expect(readdirSync(folder)).not.toContain('vmlinuz-built-in')
  })

  it('ends with 2 and one sentence for a mistake in the command line', async () => {
    const { code, stdout, stderr } = await command('--kernels').catch((error) => error)
    expect({ code, stdout, stderr }).toEqual({
      code: 2,
      stdout: '',
      stderr: 'image: unknown option --kernels: see npm run image -- --help\n',
    })
  })

  it.each([
    ['is not there', undefined, ': no such file or directory'],
    ['cannot be parsed', 'package agent_policy\n\nbar {', ':3:5: `if` keyword is required'],
    ['has the rules of another', 'package policy\nA := true\n', ': package policy: an agent asks for rules'],
  ])('ends with 1 and the policy, before it writes anything, when that %s', async (_name, text, sentence) => {
    const [policy, out] = [file('policy.rego'), file('out')]
    if (text !== undefined) writeFileSync(policy, text)
    const { code, stderr } = await command('--out', out, '--policy', policy).catch((error) => error)
    rmSync(policy, { force: true })
    expect({ code, written: existsSync(out) }).toEqual({ code: 1, written: false })
    expect(stderr).toContain(`image: --policy: ${policy}${sentence}`)
  })

  it.each([
    ['below a file', () => join(file('vmlinuz'), 'folder')],
    ['in /proc', () => '/proc/folder'],
  ])('ends with 1 and one sentence when it cannot write: %s', async (_name, place) => {
    const out = place()
    const { code, stderr } = await command('--out', out).catch((error) => error)
    expect(code).toBe(1)
    expect(stderr).toBe(`image: --out ${out}: cannot be made, want a folder that can be written\n`)
  })
})
