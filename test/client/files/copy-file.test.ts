import { mkdirSync, symlinkSync, truncateSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { beforeEach, describe, expect, it } from 'vitest'
import { type CopyRequest, copyRequests } from '../../../src/client/files/copy-file.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

describe('copyRequests', () => {
  let folder: string
  beforeEach(() => {
    folder = temporaryFolder()
  })

  async function all(name: string): Promise<readonly CopyRequest[]> {
    const requests: CopyRequest[] = []
    for await (const request of copyRequests(join(folder, name), '/target')) requests.push(request)
    return requests
  }

  it('cuts a file into pieces of 1 MiB', async () => {
    writeFileSync(join(folder, 'file'), Buffer.alloc((2 << 20) + 1, 'x'), { mode: 0o640 })
    const requests = await all('file')
    expect(requests.map(({ data, offset }) => [offset, data?.length])).toEqual([
      [0n, 1 << 20],
      [1n << 20n, 1 << 20],
      [2n << 20n, 1],
    ])
    expect(requests[0]).toMatchObject({ path: '/target', fileSize: (2n << 20n) + 1n, fileMode: 0o100_640 })
  })

  it('sends an empty file, a folder and a link as one request each', async () => {
    writeFileSync(join(folder, 'empty'), '')
    mkdirSync(join(folder, 'folder'), { mode: 0o700 })
    symlinkSync('somewhere', join(folder, 'link'))
    expect(await all('empty')).toMatchObject([{ fileSize: 0n }])
    expect(await all('folder')).toMatchObject([{ fileMode: 0o040_700 }])
    expect(await all('link')).toMatchObject([{ data: Buffer.from('somewhere') }])
  })

  it('fails for a file that shrinks meanwhile', async () => {
    const path = join(folder, 'file')
    writeFileSync(path, Buffer.alloc(3 << 20))
    const requests = copyRequests(path, '/target')
    await requests.next()
    truncateSync(path, 1 << 20)
    await expect(requests.next()).rejects.toThrow(
      `${path}: shrank from 3145728 to 1048576 bytes while it was copied`,
    )
  })

  it('refuses what is neither file, folder nor link', async () => {
    await expect(copyRequests('/dev/null', '/target').next()).rejects.toThrow(
      '/dev/null: a device, want a file, a folder or a link',
    )
  })
})
