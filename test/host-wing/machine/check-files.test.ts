import { execFileSync } from 'node:child_process'
import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { join, resolve } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { checkFiles } from '../../../src/host/instance/machine/check-files.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import { file, specification } from '../../support/wing/requests.ts'
import { tinyGuest } from '../../support/wing/tiny-guest.ts'

describe('the files of a specification', () => {
  const folder = temporaryFolder()
  const at = (name: string) => join(folder, name)
  const server = createServer()
  let kernel: string

  beforeAll(() => {
    execFileSync('mkfifo', [at('fifo')])
    mkdirSync(at('folder'))
    writeFileSync(at('file'), 'some text')
    symlinkSync(at('fifo'), at('link'))
    server.listen(at('socket'))
    kernel = tinyGuest(folder, 'idle')
  })
  afterAll(() => server.close())

  const accepted = (change: Parameters<typeof specification>[0]) =>
    expect(checkFiles(specification(change))).resolves.toBeUndefined()

  it('may be files, links to them, and nothing, which QEMU tells itself', async () => {
    symlinkSync(kernel, at('vmlinuz'))
    const bzImage = Buffer.alloc(1024)
    bzImage.write('HdrS', 0x202)
    writeFileSync(at('bzImage'), bzImage)
    writeFileSync(at('elf'), '\x7fELF')
    for (const path of [kernel, at('vmlinuz'), at('bzImage'), at('elf'), at('nothing')])
      await accepted({ board: { kernel: path, initrd: at('file'), vmlinux: at('elf') } })
    const backends = {
      disk: file(at('file')),
      item: { content: { path: at('file') } },
      tree: { folder: { path: at('folder') } },
      share: { virtiofsd: { path: at('folder') } },
      card: { vhostUser: { socket: at('socket') } },
    }
    await accepted({ board: { kernel }, backends })
  })

  it('refuses a kernel that has become another file since it was read', async () => {
    const path = at('changing')
    writeFileSync(path, '\x7fELF')
    for (let count = 0; count < 2; count++) await accepted({ board: { kernel: path } })
    writeFileSync(path, 'text')
    await expect(checkFiles(specification({ board: { kernel: path } }))).rejects.toThrow('not a kernel')
  })

  it.each([
    ['kernel', 'fifo', 'a FIFO, want a file'],
    ['kernel', 'link', 'a FIFO, want a file'],
    ['kernel', '/dev/null', 'a character device, want a file'],
    ['kernel', 'file', 'not a kernel, want a bzImage'],
    ['initrd', 'folder', 'a folder, want a file'],
    ['vmlinux', 'socket', 'a socket, want a file'],
  ])('refuses as %s: %s', async (field, name, text) => {
    const path = resolve(folder, name)
    await expect(checkFiles(specification({ board: { kernel, [field]: path } }))).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
      message: `board.${field}: ${path}: ${text}`,
    })
  })

  it.each([
    ['file.path', (path: string) => file(path), 'fifo', 'a FIFO, want a file or a block device'],
    ['file.path', (path: string) => file(path), 'folder', 'a folder, want a file or a block device'],
    ['content.path', (path: string) => ({ content: { path } }), 'fifo', 'a FIFO, want a file'],
    ['folder.path', (path: string) => ({ folder: { path } }), 'file', 'a file, want a folder'],
    ['virtiofsd.path', (path: string) => ({ virtiofsd: { path } }), 'file', 'a file, want a folder'],
    ['vhost_user.socket', (socket: string) => ({ vhostUser: { socket } }), 'file', 'a file, want a socket'],
  ])('refuses as %s: %#', async (field, backend, name, text) => {
    const given = specification({ board: { kernel }, backends: { 'a b': backend(at(name)) } })
    await expect(checkFiles(given)).rejects.toMatchObject({
      message: `backends["a b"].${field}: ${at(name)}: ${text}`,
    })
  })
})
