import { execFileSync } from 'node:child_process'
import {
  constants,
  existsSync,
  mkdirSync,
  readFileSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs'
import { open } from 'node:fs/promises'
import { constants as os } from 'node:os'
import { gzipSync, zstdCompressSync } from 'node:zlib'
import { describe, expect, it } from 'vitest'
import { checkLock } from '../../../src/host/root-disk/disk.ts'
import { prepareRootDisk, refuseUnfinishedDisk } from '../../../src/host/root-disk/prepare-root-disk.ts'
import {
  answerImage,
  type DiskPlace,
  IMAGE,
  MIB,
  newPlace,
  QUICK,
  SHA256,
  serve,
  sha256Of,
} from '../../support/host-wing/image-server.ts'

const SERVING = { image: IMAGE, etag: '"one"' }

interface WrongDisk {
  readonly disk: string
  readonly make: (path: string) => void
  /** Behind the path. */
  readonly reason: string
}

const WRONG: readonly WrongDisk[] = [
  {
    disk: 'a symbolic link',
    make: (path) => {
      writeFileSync(`${path}.target`, '')
      symlinkSync(`${path}.target`, path)
    },
    reason: 'is a symlink, want a regular file or a block device',
  },
  {
    disk: 'a symbolic link to nothing',
    make: (path) => symlinkSync(`${path}.absent`, path),
    reason: 'is a symlink, want a regular file or a block device',
  },
  {
    disk: 'a fifo',
    make: (path) => void execFileSync('mkfifo', [path]),
    reason: 'is a fifo, want a regular file or a block device',
  },
  {
    disk: 'a folder',
    make: (path) => mkdirSync(path),
    reason: 'is a directory, want a regular file or a block device',
  },
]

describe.each(WRONG)('a disk that is $disk', ({ make, reason }) => {
  it('is refused', async () => {
    const place = newPlace()
    const url = fileUrl(place, IMAGE)
    make(place.disk)
    await expect(prepareRootDisk({ url, ...place })).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
      message: `${place.disk}: ${reason}`,
    })
  })
})

it('a character device is no disk', async () => {
  const url = fileUrl(newPlace(), IMAGE)
  await expect(prepareRootDisk({ url, ...newPlace(), disk: '/dev/null' })).rejects.toMatchObject({
    code: 'FAILED_PRECONDITION',
    message: '/dev/null: is a character, want a regular file or a block device',
  })
})

it('a disk in a folder that does not exist is an error of the kernel', async () => {
  const disk = `${newPlace().disk}/absent/root.img`
  const url = fileUrl(newPlace(), IMAGE)
  await expect(prepareRootDisk({ url, ...newPlace(), disk })).rejects.toMatchObject({ name: 'AgentError' })
})

describe('a disk with a size', () => {
  it.each([
    ['raw', IMAGE],
    ['compressed', gzipSync(IMAGE)],
  ])('is refused when the image is larger: %s', async (_, image) => {
    const place = newPlace()
    const url = fileUrl(place, image)
    writeFileSync(place.disk, '')
    truncateSync(place.disk, IMAGE.length - 512)
    await expect(prepareRootDisk({ url, ...place })).rejects.toMatchObject({
      code: 'RESOURCE_EXHAUSTED',
      message: `${url}: is larger than ${IMAGE.length - 512} bytes, the size of ${place.disk}`,
    })
  })

  it('may have the size of the image, and be empty', async () => {
    const place = newPlace()
    writeFileSync(place.disk, '')
    truncateSync(place.disk, IMAGE.length)
    await prepareRootDisk({ url: fileUrl(place, IMAGE), ...place })
    expect(sha256Of(readFileSync(place.disk))).toBe(SHA256)
  })
})

describe('a disk with content', () => {
  it('is refused without a record, and left as it is', async () => {
    for (const at of [0, MIB - 1]) {
      const [place, content] = [newPlace(), Buffer.alloc(2 * MIB)]
      content[at] = 1
      const url = fileUrl(place, IMAGE.subarray(0, MIB))
      writeFileSync(place.disk, content)
      await expect(prepareRootDisk({ url, ...place })).rejects.toMatchObject({
        code: 'FAILED_PRECONDITION',
        message: `${place.disk}: has content and no record of an image, want it empty`,
      })
      expect(readFileSync(place.disk).equals(content)).toBe(true)
      expect(existsSync(place.stateFile)).toBe(false)
    }
  })
})

describe('a disk in use', () => {
  it('is refused to a second preparation, and free after the first', async () => {
    const first = Promise.withResolvers<void>()
    const server = await serve((request, answer) => {
      first.resolve()
      setTimeout(() => answerImage(request, answer, SERVING), 50)
    })
    const place = newPlace()
    const options = { url: server.url, ...place }
    const prepared = prepareRootDisk(options)
    await first.promise
    await expect(prepareRootDisk(options)).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
      message: `${place.disk}: is in use by another process, such as QEMU or another preparation`,
    })
    await prepared
    expect(await prepareRootDisk(options)).toEqual({ bytes: IMAGE.length, sha256: undefined })
    expect(server.ranges).toEqual([''])
  })

  it('is told from one whose file system has no locks', () => {
    const { EAGAIN, EACCES, EIO } = os.errno
    for (const errno of [EAGAIN, EACCES])
      expect(() => checkLock('/disk', -errno)).toThrow('/disk: is in use by another process')
    expect(() => checkLock('/disk', -EIO)).toThrow('lock /disk: EIO')
    checkLock('/disk', 0)
  })
})

describe('a disk that was prepared', () => {
  it('is prepared again once it is gone', async () => {
    const place = newPlace()
    const url = fileUrl(place, IMAGE)
    await prepareRootDisk({ url, ...place })
    const other = { ...place, disk: `${place.disk}.2` }
    await prepareRootDisk({ url, ...other })
    expect(sha256Of(readFileSync(other.disk))).toBe(SHA256)
  })

  it('is refused when it has lost a part', async () => {
    const place = newPlace()
    const url = fileUrl(place, IMAGE)
    await prepareRootDisk({ url, ...place })
    truncateSync(place.disk, MIB)
    await expect(prepareRootDisk({ url, ...place })).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
      message: `${place.disk}: is smaller than when it was prepared from ${url}`,
    })
  })

  it('is refused with a record that is damaged', async () => {
    const place = newPlace()
    const url = fileUrl(place, IMAGE)
    await prepareRootDisk({ url, ...place })
    for (const text of ['', '{', '{}', '{"version":2}']) {
      writeFileSync(place.stateFile, text)
      const refused = {
        code: 'FAILED_PRECONDITION',
        message: `${place.stateFile}: is not the record of a root disk`,
      }
      await expect(prepareRootDisk({ url, ...place })).rejects.toMatchObject(refused)
      await expect(refuseUnfinishedDisk(place)).rejects.toMatchObject(refused)
    }
  })
})

describe('a part of an image on a disk', () => {
  async function half(place: DiskPlace): Promise<string[]> {
    let requests = 0
    const server = await serve((request, answer) => {
      requests += 1
      answerImage(request, answer, SERVING, requests === 1 ? 3 * MIB : undefined)
    })
    const options = { url: server.url, ...place, limits: { ...QUICK, tries: 1 } }
    await expect(prepareRootDisk(options)).rejects.toMatchObject({ code: 'UNAVAILABLE' })
    await expect(refuseUnfinishedDisk(place)).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
      message: `${place.disk}: only a part of ${server.url} is on it`,
    })
    return server.ranges
  }

  async function again(place: DiskPlace, ranges: readonly string[]): Promise<void> {
    const { url } = JSON.parse(readFileSync(place.stateFile, 'utf8'))
    await prepareRootDisk({ url: `${url}#sha256=${SHA256}`, ...place, limits: QUICK })
    expect(sha256Of(readFileSync(place.disk))).toBe(SHA256)
    expect(ranges).toHaveLength(2)
  }

  it('is kept by the next preparation', async () => {
    const place = newPlace()
    const ranges = await half(place)
    await again(place, ranges)
    expect(ranges[1]).toMatch(/^bytes=[1-9]\d+-$/)
  })

  it('is kept on a disk with a size', async () => {
    const place = newPlace()
    writeFileSync(place.disk, Buffer.concat([Buffer.alloc(MIB), Buffer.alloc(IMAGE.length - MIB, 'x')]))
    const ranges = await half(place)
    await again(place, ranges)
    expect(ranges[1]).toMatch(/^bytes=[1-9]\d+-$/)
  })

  it('is written anew when something else has changed it', async () => {
    const place = newPlace()
    const ranges = await half(place)
    const file = await open(place.disk, constants.O_WRONLY)
    await file.write(Buffer.from('changed'), 0, 7, 1000)
    await file.close()
    await again(place, ranges)
    expect(ranges[1]).toBe('')
  })

  it('does not hide what something else has written behind it', async () => {
    const place = newPlace()
    const ranges = await half(place)
    const { position } = JSON.parse(readFileSync(place.stateFile, 'utf8'))
    writeFileSync(
      place.disk,
      Buffer.concat([readFileSync(place.disk).subarray(0, position), Buffer.alloc(9 * MIB, 'x')]),
    )
    await again(place, ranges)
    expect(ranges[1]).toBe(`bytes=${position}-`)
  })
})

describe('an image by file', () => {
  it('is refused unless it is another regular file', async () => {
    const place = newPlace()
    writeFileSync(place.disk, Buffer.alloc(MIB))
    await expect(prepareRootDisk({ url: `file://${place.disk}`, ...place })).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
      message: `file://${place.disk}: is the disk itself`,
    })
    execFileSync('mkfifo', [`${place.disk}.fifo`])
    for (const path of [`${place.disk}.fifo`, '/tmp', '/dev/zero']) {
      await expect(prepareRootDisk({ url: `file://${path}`, ...newPlace() })).rejects.toMatchObject({
        code: 'FAILED_PRECONDITION',
        message: `file://${path}: is not a regular file`,
      })
    }
    await expect(prepareRootDisk({ url: 'file:///absent', ...newPlace() })).rejects.toMatchObject({
      code: 'NOT_FOUND',
      message: 'file:///absent: does not exist',
    })
  })
})

describe('a format that is no raw disk', () => {
  const at = (magic: string, offset = 0) => {
    const image = Buffer.alloc(MIB, 1)
    image.write(magic, offset, 'latin1')
    return image
  }
  const FORMATS: readonly (readonly [string, Buffer])[] = [
    ['qcow', at('QFI\xfb\0\0\0\x03')],
    ['qed', at('QED\0')],
    ['vmdk', at('KDMV')],
    ['vmdk', at('# Disk DescriptorFile\nversion=1\n')],
    ['vdi', at('\x7f\x10\xda\xbe', 64)],
    ['vhd', at('conectix')],
    ['vhd', at('conectix', MIB - 512)],
    ['vhdx', at('vhdxfile')],
    ['luks', at('LUKS\xba\xbe')],
    ['dmg', at('koly', MIB - 512)],
    ['xz', at('\xfd7zXZ\0')],
    ['tar', at('ustar', 257)],
  ]

  it.each(FORMATS)('is refused: %s, as it is or compressed', async (format, image) => {
    for (const served of [image, gzipSync(image), zstdCompressSync(image)]) {
      const place = newPlace()
      const url = fileUrl(place, served)
      const message = `${url}: format ${format}, want a raw disk, or one compressed by gzip or zstd`
      await expect(prepareRootDisk({ url, ...place })).rejects.toMatchObject({
        code: 'FAILED_PRECONDITION',
        message,
      })
    }
  })

  it('is refused when it is compressed twice', async () => {
    const place = newPlace()
    const url = fileUrl(place, zstdCompressSync(gzipSync(IMAGE)))
    await expect(prepareRootDisk({ url, ...place })).rejects.toThrow(`${url}: format gzip, want a raw disk`)
  })
})

/** The URL of a file with these bytes. */
function fileUrl({ disk }: DiskPlace, bytes: Buffer): string {
  writeFileSync(`${disk}.image`, bytes)
  return `file://${disk}.image`
}
