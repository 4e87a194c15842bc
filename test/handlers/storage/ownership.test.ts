import { beforeEach, describe, expect, it } from 'vitest'
import { neverAborted } from '../../../src/base/abort.ts'
import { FSGroupChangePolicy } from '../../../src/gen/types.ts'
import { applyFsGroup } from '../../../src/handlers/storage/ownership.ts'
import { kernelError } from '../../../src/os/errors.ts'
import { FakeOs } from '../../support/fakes/fake-os.ts'
import { dependenciesOf, ROOT } from '../../support/handlers/storage/storage-builder.ts'

const VOLUME = `${ROOT}/volume`

describe('applyFsGroup', () => {
  let os: FakeOs

  beforeEach(async () => {
    os = new FakeOs()
    await os.files.makeDirectories(`${VOLUME}/folder`, 0o755)
    await os.files.write(`${VOLUME}/folder/file`, 'x', { mode: 0o600 })
    await os.files.chown(`${VOLUME}/folder/file`, 42, 42)
  })

  it('changes the group of files and directories and keeps their users', async () => {
    await apply()
    expect(await os.files.lstat(VOLUME)).toMatchObject({ gid: 1000, mode: 0o2775 })
    expect(await os.files.lstat(`${VOLUME}/folder`)).toMatchObject({ gid: 1000, mode: 0o2775 })
    expect(await os.files.lstat(`${VOLUME}/folder/file`)).toMatchObject({ uid: 42, gid: 1000, mode: 0o660 })
  })

  it('adds only read access to a read-only storage', async () => {
    await apply({ readOnly: true })
    expect(await os.files.lstat(VOLUME)).toMatchObject({ mode: 0o2755 })
    expect(await os.files.lstat(`${VOLUME}/folder/file`)).toMatchObject({ mode: 0o640 })
  })

  it('keeps the setuid bit of a file', async () => {
    await os.files.chmod(`${VOLUME}/folder/file`, 0o4755)
    await apply()
    expect(await os.files.lstat(`${VOLUME}/folder/file`)).toMatchObject({ mode: 0o4775 })
  })

  it('neither changes nor follows symbolic links', async () => {
    await os.files.makeDirectories('/etc/secret', 0o700)
    await os.files.write('/etc/shadow', '', { mode: 0o600 })
    await os.files.symlink('/etc/secret', `${VOLUME}/folder/directory-link`)
    await os.files.symlink('/etc/shadow', `${VOLUME}/file-link`)
    await apply()
    expect(await os.files.lstat('/etc/secret')).toMatchObject({ gid: 0, mode: 0o700 })
    expect(await os.files.lstat('/etc/shadow')).toMatchObject({ gid: 0, mode: 0o600 })
  })

  it('skips the walk with OnRootMismatch when the root has the group already', async () => {
    await os.files.chown(VOLUME, 0, 1000)
    await os.files.chmod(VOLUME, 0o2770)
    await apply({ policy: FSGroupChangePolicy.OnRootMismatch })
    expect(await os.files.lstat(`${VOLUME}/folder/file`)).toMatchObject({ gid: 42, mode: 0o600 })
  })

  it.each([
    ['another group', 1001, 0o2770],
    ['no setgid bit', 1000, 0o770],
    ['no write permission', 1000, 0o2750],
  ])('walks by OnRootMismatch when the root has %s', async (_, gid, mode) => {
    await os.files.chown(VOLUME, 0, gid)
    await os.files.chmod(VOLUME, mode)
    await apply({ policy: FSGroupChangePolicy.OnRootMismatch })
    expect(await os.files.lstat(`${VOLUME}/folder/file`)).toMatchObject({ gid: 1000 })
  })

  it('always walks with Always', async () => {
    await os.files.chown(VOLUME, 0, 1000)
    await os.files.chmod(VOLUME, 0o2770)
    await apply({ policy: FSGroupChangePolicy.Always })
    expect(await os.files.lstat(`${VOLUME}/folder/file`)).toMatchObject({ gid: 1000 })
  })

  it('accepts that a read-only file system keeps its owners', async () => {
    os.files.chown = async (path) => Promise.reject(kernelError('chown', path, 'EROFS'))
    await expect(apply({ readOnly: true })).resolves.toBeUndefined()
  })

  it('fails when the kernel refuses for another reason', async () => {
    os.files.chown = async (path) => Promise.reject(kernelError('chown', path, 'EPERM'))
    await expect(apply()).rejects.toThrow(`chown ${VOLUME}: EPERM`)
  })

  it('stops when its call is aborted', async () => {
    await expect(apply({ signal: AbortSignal.abort(new Error('gone')) })).rejects.toThrow('gone')
    expect(await os.files.lstat(VOLUME)).toMatchObject({ gid: 0 })
  })

  function apply({
    readOnly = false,
    policy = FSGroupChangePolicy.Always as FSGroupChangePolicy,
    signal = neverAborted,
  } = {}) {
    const group = { groupId: 1000, groupChangePolicy: policy }
    return applyFsGroup({ root: VOLUME, group, readOnly }, dependenciesOf(os), signal)
  }
})
