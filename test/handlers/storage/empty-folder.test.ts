import { describe, expect, it } from 'vitest'
import { emptyFolder } from '../../../src/handlers/storage/empty-folder.ts'
import { FakeOs } from '../../support/fakes/fake-os.ts'

const ROOT = '/run/kata-containers'

async function machine(...mountPoints: readonly string[]) {
  const os = new FakeOs()
  await os.files.put(`${ROOT}/a/b/file`, 'x')
  await os.files.put('/run/kata-containers-not/file', 'x')
  for (const target of mountPoints) {
    await os.mounts.mount({ source: 's', target, type: 'tmpfs', flags: [], data: '' })
  }
  return os
}

const mountPoints = (os: FakeOs) => os.mounts.entries.map(({ mountPoint }) => mountPoint)

describe('emptyFolder', () => {
  it('unmounts everything below, nested and stacked, then removes the files', async () => {
    const os = await machine(`${ROOT}/a`, `${ROOT}/a/b`, `${ROOT}/a/b`, `${ROOT}/a/b/c`)
    await emptyFolder(os, ROOT)
    expect(mountPoints(os)).toEqual(['/'])
    expect(await os.files.list(ROOT)).toEqual([])
  })

  it('unmounts the folder itself', async () => {
    const os = await machine(ROOT)
    await emptyFolder(os, ROOT)
    expect(mountPoints(os)).toEqual(['/'])
  })

  it('keeps folders whose names only begin alike', async () => {
    const os = await machine('/run/kata-containers-not')
    await emptyFolder(os, ROOT)
    expect(mountPoints(os)).toEqual(['/', '/run/kata-containers-not'])
    expect(await os.files.list('/run/kata-containers-not')).toEqual(['file'])
  })

  it('fails, and removes nothing, when a mount cannot be unmounted', async () => {
    const os = await machine(`${ROOT}/a`, `${ROOT}/other`)
    os.mounts.failWith = (call, target) =>
      call === 'unmount' && target === `${ROOT}/a` ? 'EBUSY' : undefined
    await expect(emptyFolder(os, ROOT)).rejects.toMatchObject({ errno: 'EBUSY' })
    expect(await os.files.readText(`${ROOT}/a/b/file`)).toBe('x')
    expect(mountPoints(os)).toEqual(['/', `${ROOT}/a`])
  })

  it('unmounts a mount that another one hides, after that one', async () => {
    const os = await machine(`${ROOT}/a/b`, `${ROOT}/a`)
    os.mounts.failWith = (call, target) =>
      call === 'unmount' && target === `${ROOT}/a/b` && os.mounts.isMountPoint(`${ROOT}/a`)
        ? 'EINVAL'
        : undefined
    await emptyFolder(os, ROOT)
    expect(mountPoints(os)).toEqual(['/'])
  })

  it.each(['/run', '/'])(
    'creates a missing folder in %s, and asks for mounts only without it',
    async (parent) => {
      const os = new FakeOs()
      await os.files.makeDirectories(parent)
      let asked = 0
      const { list } = os.mounts
      os.mounts.list = () => {
        asked += 1
        return list.call(os.mounts)
      }
      await emptyFolder(os, ROOT)
      expect(await os.files.list('/run')).toEqual(['kata-containers'])
      expect(asked).toBe(parent === '/run' ? 0 : 1)
    },
  )
})
