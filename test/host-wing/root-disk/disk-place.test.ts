import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { findDiskPlace } from '../../../src/host/root-disk/disk-place.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

describe('the record of a disk', () => {
  it('is beside a file, wherever that is', async () => {
    const [folder, memory] = [temporaryFolder(), `/dev/shm/absent-${process.pid}`]
    const disk = join(folder, 'root.img')
    for (const path of [disk, memory])
      expect(await findDiskPlace(path, '/state')).toEqual({ disk: path, stateFile: `${path}.initial-image` })
    writeFileSync(disk, '')
    expect(await findDiskPlace(disk, '/state')).toEqual({ disk, stateFile: `${disk}.initial-image` })
  })

  it('is one for all links to the disk', async () => {
    const folder = temporaryFolder()
    const disk = join(folder, 'disks/root.img')
    mkdirSync(join(folder, 'disks'))
    symlinkSync('disks', join(folder, 'others'))
    symlinkSync(disk, join(folder, 'link'))
    const place = { disk, stateFile: `${disk}.initial-image` }
    // It is not made yet.
    expect(await findDiskPlace(join(folder, 'others/root.img'), '/state')).toEqual(place)
    writeFileSync(disk, '')
    for (const path of ['link', 'others/root.img'])
      expect(await findDiskPlace(join(folder, path), '/state')).toEqual(place)
  })

  it('is refused below a folder that does not exist', async () => {
    await expect(findDiskPlace('/absent/root.img', '/state')).rejects.toMatchObject({
      name: 'AgentError',
      message: 'look at /absent: ENOENT',
    })
  })
})
