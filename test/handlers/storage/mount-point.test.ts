import { beforeEach, describe, expect, it } from 'vitest'
import { checkMountPoint } from '../../../src/handlers/storage/mount-point.ts'
import { FakeOs } from '../../support/fakes/fake-os.ts'

describe('checkMountPoint', () => {
  let os: FakeOs

  beforeEach(async () => {
    os = new FakeOs()
    await os.files.makeDirectories('/run/kata-containers/shared/containers')
    await os.files.put('/run/kata-containers/file', '')
    await os.files.symlink('/etc', '/run/kata-containers/link')
    await os.files.makeDirectories('/run/user/7')
    await os.files.symlink('/run', '/run/user/7/run')
  })

  it.each([
    '/run/kata-containers/sandbox/shm',
    '/run/kata-containers/shared/containers/c1/rootfs',
    '/run/kata-containers/file',
    '/run/kata-containers/..name',
    '/run/user/1000/run/kata-containers/shared/containers',
  ])('accepts %s', async (path) => {
    await expect(check(path)).resolves.toBeUndefined()
  })

  it.each([
    ['', 'not a normalised absolute path'],
    ['run/kata-containers/x', 'not a normalised absolute path'],
    ['/run/kata-containers/../etc', 'not a normalised absolute path'],
    ['/run/kata-containers/./x', 'not a normalised absolute path'],
    ['/run/kata-containers//x', 'not a normalised absolute path'],
    ['/run/kata-containers/x/', 'not a normalised absolute path'],
    ['/run/kata-containers/x\0y', 'not a normalised absolute path'],
    ['/run/kata-containers', 'not below /run/kata-containers'],
    ['/run/kata-containers-2/x', 'not below /run/kata-containers'],
    ['/etc', 'not below /run/kata-containers'],
    ['/run/user/1000/run/kata-containers', 'not below /run/kata-containers'],
    ['/run/user/1000/etc', 'not below /run/kata-containers'],
    ['/run/user/me/run/kata-containers/x', 'not below /run/kata-containers'],
    ['/run/user/1000/run/user/1000/run/kata-containers/x', 'not below /run/kata-containers'],
    ['/run/user/7/run/kata-containers/x', '/run/user/7/run is a symbolic link'],
    ['/run/kata-containers/link', '/run/kata-containers/link is a symbolic link'],
    ['/run/kata-containers/link/x', '/run/kata-containers/link is a symbolic link'],
    ['/run/kata-containers/file/x', '/run/kata-containers/file is not a directory'],
  ])('refuses %j', async (path, reason) => {
    await expect(check(path)).rejects.toMatchObject({
      code: 'INVALID_ARGUMENT',
      message: expect.stringContaining(`mount point "${path}": `),
    })
    await expect(check(path)).rejects.toThrow(reason)
  })

  it('refuses a path longer than PATH_MAX and quotes only its beginning', async () => {
    const path = `/run/kata-containers/${'x/'.repeat(2036)}xx`
    await expect(check(path)).resolves.toBeUndefined()
    const refusal = expect(check(`${path}x`)).rejects
    await refusal.toMatchObject({ code: 'INVALID_ARGUMENT' })
    await refusal.toThrow(/^mount point "\/run\/kata-containers\/(x\/)*x?…": longer than 4095 bytes$/)
  })

  function check(path: string) {
    return checkMountPoint(os.files, path, ['/run/kata-containers'])
  }
})
