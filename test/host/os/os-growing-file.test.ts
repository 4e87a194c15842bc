import { execFileSync } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { mkdirSync, readFileSync, truncateSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it, onTestFinished } from 'vitest'
import type { StoredBytes } from '../../../src/base/stored-bytes.ts'
import type { Folder } from '../../../src/os/files/folder.ts'
import { linuxFiles } from '../../../src/os/files/linux-files.ts'
import { linuxStreams } from '../../../src/os/streams/linux-streams.ts'
import { type CallStatus, statusOf } from '../../../src/rpc/status.ts'
import { DataInFile } from '../../support/os/data-in-file.ts'
import { realNative } from '../../support/os/real-native.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

const MIB = 2 ** 20
/** Room for one file of so many bytes, not for two. */
const bytes = randomBytes(5 * MIB)

/** Each returns a folder of a small file system. */
const FILE_SYSTEMS: Readonly<Record<string, () => string>> = {
  tmpfs: () => mounted('-t', 'tmpfs', '-o', 'size=8m', 'tmpfs'),
  ext4: () => onDisk(8, 'mkfs.ext4', '-q', '-O', '^has_journal'),
  overlay: () => {
    const below = mounted('-t', 'tmpfs', '-o', 'size=8m', 'tmpfs')
    for (const name of ['lower', 'upper', 'work']) mkdirSync(join(below, name))
    const folders = `lowerdir=${below}/lower,upperdir=${below}/upper,workdir=${below}/work`
    return mounted('-t', 'overlay', '-o', folders, 'overlay')
  },
}

describe.each(Object.entries(FILE_SYSTEMS))('a growing file on %s', (_type, make) => {
  let folder: Folder
  let root: string
  let data: DataInFile

  beforeEach(async () => {
    const native = await realNative()
    root = make()
    folder = await linuxFiles(native).openFolder(root)
    data = new DataInFile(linuxStreams(native), bytes)
  })

  afterEach(async () => {
    data.close()
    await folder.close()
  })

  it('takes data out of a file in memory without reading it', async () => {
    const file = await folder.createFile('file')
    await file.write(Buffer.from('before'), 0)
    await file.write(data, 6)
    await file.close()
    expect(readFileSync(join(root, 'file')).equals(Buffer.concat([Buffer.from('before'), bytes]))).toBe(true)
    expect(data.reads).toBe(0)
  })

  it('says that its file system is full as it does for data in memory', async () => {
    await folder.create('first', bytes, { mode: 0o600, uid: 0, gid: 0, modifiedNs: 0n })
    const full = /^write .*\/file: ENOSPC: ENOSPC: no space left/
    expect(await failureOf(bytes)).toMatchObject({ code: 'INTERNAL', message: expect.stringMatching(full) })
    expect(await failureOf(data)).toEqual(await failureOf(bytes))
  })

  it('says that it is too large as it does for data in memory', async () => {
    const limit = (bytes: string) =>
      void execFileSync('prlimit', ['--pid', String(process.pid), `--fsize=${bytes}:`])
    limit('1000000')
    onTestFinished(() => limit('unlimited'))
    const tooLarge = /^write .*\/file: EFBIG: EFBIG: file too large/
    expect(await failureOf(bytes)).toMatchObject({ message: expect.stringMatching(tooLarge) })
    expect(await failureOf(data)).toEqual(await failureOf(bytes))
  })

  async function failureOf(given: Uint8Array | StoredBytes): Promise<CallStatus> {
    const file = await folder.createFile('file')
    const error: unknown = await file.write(given, 0).catch((error: unknown) => error)
    await file.close()
    await folder.remove('file')
    return statusOf(error)
  }
})

function mounted(...options: readonly string[]): string {
  const folder = temporaryFolder()
  execFileSync('mount', [...options, folder])
  onTestFinished(() => void execFileSync('umount', [folder]))
  return folder
}

function onDisk(mib: number, make: string, ...options: readonly string[]): string {
  const disk = join(temporaryFolder(), 'disk.img')
  writeFileSync(disk, '')
  truncateSync(disk, mib * MIB)
  execFileSync(make, [...options, disk], { env: { PATH: '/usr/sbin:/sbin:/usr/bin:/bin' } })
  return mounted('-o', 'loop', disk)
}
