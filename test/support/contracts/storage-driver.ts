import { dirname } from 'node:path/posix'
import { describe, expect, it } from 'vitest'
import { cancelled, neverAborted } from '../../../src/base/abort.ts'
import type { Storage } from '../../../src/gen/agent.ts'
import type { StorageDriver } from '../../../src/handlers/storage/driver.ts'
import { FakeOs } from '../fakes/fake-os.ts'
import { dependenciesOf } from '../handlers/storage/storage-builder.ts'

export interface StorageDriverCase {
  readonly driver: StorageDriver
  readonly storage: Storage
  readonly prepare?: (os: FakeOs) => Promise<void>
}

export function storageDriverContract(name: string, given: StorageDriverCase): void {
  describe(`${name} as a storage driver`, () => {
    it('makes the storage usable at its mount point and says what it made', async () => {
      const os = await machine()
      const attachment = await attach(os)
      expect(attachment.mountPoint).toBe(given.storage.mountPoint)
      expect((await os.files.lstat(given.storage.mountPoint))?.kind).toBe('directory')
      expect(os.mounts.isMountPoint(given.storage.mountPoint)).toBe(attachment.kind === 'mount')
    })

    it('uses a mount point that is there already', async () => {
      const os = await machine()
      await os.files.makeDirectories(given.storage.mountPoint, 0o700)
      await expect(attach(os)).resolves.toMatchObject({ mountPoint: given.storage.mountPoint })
    })

    it('leaves nothing behind when its call is cancelled', async () => {
      const os = await machine()
      await expect(attach(os, AbortSignal.abort(cancelled()))).rejects.toMatchObject({ code: 'CANCELLED' })
      await expectUntouched(os)
    })

    it('leaves nothing behind when the mount point turns out to be a link', async () => {
      const os = await machine()
      await os.files.makeDirectories('/elsewhere')
      await os.files.makeDirectories(dirname(dirname(given.storage.mountPoint)))
      // A race: between check and use, a symbolic link replaces the folder.
      os.files.makeDirectories = (path) => os.files.symlink('/elsewhere', path)
      await expect(attach(os)).rejects.toThrow('is a symbolic link')
      expect(await os.files.list('/elsewhere')).toEqual([])
      expect(os.mounts.requests.filter(({ target }) => target === given.storage.mountPoint)).toEqual([])
      expect(os.mounts.entries.map(({ mountPoint }) => mountPoint)).toEqual(['/'])
    })

    it('leaves nothing behind when the kernel refuses', async () => {
      const os = await machine()
      os.mounts.failWith = (call) => (call === 'mount' ? 'EINVAL' : undefined)
      os.files.chmod = async () => Promise.reject(new Error('EPERM'))
      await expect(attach(os)).rejects.toThrow()
      await expectUntouched(os)
    })
  })

  async function machine(): Promise<FakeOs> {
    const os = new FakeOs()
    await given.prepare?.(os)
    return os
  }

  function attach(os: FakeOs, signal = neverAborted) {
    return given.driver.attach(given.storage, dependenciesOf(os), signal)
  }

  async function expectUntouched(os: FakeOs): Promise<void> {
    expect(os.mounts.isMountPoint(given.storage.mountPoint)).toBe(false)
    expect(await os.files.lstat(given.storage.mountPoint)).toBeUndefined()
    expect(os.uevents.listeners.size).toBe(0)
  }
}
