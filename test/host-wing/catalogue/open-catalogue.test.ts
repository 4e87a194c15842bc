import { chmodSync, chownSync, mkdirSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { NO_CATALOGUE, readCatalogue } from '../../../src/host/catalogue/catalogue.ts'
import { checkLinks, openCatalogue } from '../../../src/host/catalogue/open-catalogue.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

const isRoot = process.getuid?.() === 0

describe("the catalogue's file", () => {
  const folder = temporaryFolder()
  const path = join(folder, 'catalogue.toml')
  const written = (text: string, mode = 0o644) => {
    writeFileSync(path, text)
    chmodSync(path, mode)
    return openCatalogue(path)
  }

  it('is read anew each time, and may not be missing where it is named', async () => {
    await expect(openCatalogue(join(folder, 'none'))).rejects.toThrow(`${join(folder, 'none')}: ENOENT`)
    expect(await written('networks.lan = { bridge = "br0" }')).toMatchObject({
      networks: { lan: { bridge: 'br0' } },
    })
    expect(await written('')).toEqual(NO_CATALOGUE)
  })

  it('is refused by its name where it is wrong', async () => {
    const wrong = { code: 'FAILED_PRECONDITION', message: expect.stringMatching(`^${path}: Invalid TOML`) }
    await expect(written('volumes = [')).rejects.toMatchObject(wrong)
    await expect(written('volume = 1')).rejects.toThrow(`${path}: volume: unknown field`)
  })

  it('is refused when others may write or replace it', async () => {
    await expect(written('', 0o664)).rejects.toThrow(`${path}: mode 664: others may write it, want 644`)
    const open = join(folder, 'open')
    mkdirSync(open)
    chmodSync(open, 0o777)
    writeFileSync(join(open, 'file'), '')
    await expect(openCatalogue(join(open, 'file'))).rejects.toThrow('file: others may replace it')
    symlinkSync(path, join(folder, 'link'))
    await expect(openCatalogue(join(folder, 'link'))).rejects.toThrow('link: a link, want a file')
    await expect(openCatalogue(folder)).rejects.toThrow(`${folder}: want a file`)
  })

  it.runIf(isRoot)("is refused when it is another user's", async () => {
    const other = join(folder, 'other')
    writeFileSync(other, '')
    chownSync(other, 65534, 65534)
    await expect(openCatalogue(other)).rejects.toThrow(`${other}: user 65534 owns it, want root`)
  })
})

describe('a path of the catalogue at a start', () => {
  const folder = temporaryFolder()
  const root = join(folder, 'root')
  mkdirSync(join(root, 'open'), { recursive: true })
  chmodSync(join(root, 'open'), 0o777)
  for (const name of ['root/file', 'outside', 'root/open/file']) writeFileSync(join(folder, name), '')
  symlinkSync('file', join(root, 'inside'))
  symlinkSync('../outside', join(root, 'out'))
  symlinkSync('loop', join(root, 'loop'))
  const catalogue = readCatalogue({ roots: [root] })
  const check = (path: string) => checkLinks(catalogue, { disk: { kind: 'file', path, access: 'read-only' } })

  it.each(['file', 'inside'])('may be %s', async (name) => {
    await expect(check(join(root, name))).resolves.toBeUndefined()
  })

  it.each([
    ['out', 'leads to .*/outside, which is in none of '],
    ['loop', 'its links are a loop'],
    ['open/file', 'others can replace it'],
    ['open/missing', 'ENOENT'],
  ])('is refused: %s', async (name, text) => {
    const message = expect.stringMatching(`^backends.disk: ${join(root, name)}: ${text}`)
    await expect(check(join(root, name))).rejects.toMatchObject({ code: 'FAILED_PRECONDITION', message })
  })

  it("is an administrator's own below no root", async () => {
    await expect(check(join(folder, 'outside'))).resolves.toBeUndefined()
  })
})
