import { beforeEach, describe, expect, it } from 'vitest'
import { cancelled } from '../../../../src/base/abort.ts'
import { watchableBind } from '../../../../src/handlers/storage/drivers/watchable/watchable-bind.ts'
import type { StorageHandlers } from '../../../../src/handlers/storage/storage.ts'
import { kernelError } from '../../../../src/os/errors.ts'
import { storageDriverContract } from '../../../support/contracts/storage-driver.ts'
import type { FakeOs } from '../../../support/fakes/fake-os.ts'
import { publish, treeOf } from '../../../support/handlers/storage/kubernetes-volume.ts'
import { ROOT } from '../../../support/handlers/storage/storage-builder.ts'
import {
  COPY,
  keys,
  SHARED,
  SOURCE,
  turn,
  WATCHED,
  WatchedMachine,
  watchable,
} from '../../../support/handlers/storage/watched-machine.ts'

storageDriverContract('watchable-bind', {
  driver: watchableBind,
  storage: watchable(),
  prepare: ({ files }) => publish(files, SOURCE, '..v1', { key: 'one' }),
})

describe('watchable-bind', () => {
  let machine: WatchedMachine
  let os: FakeOs
  let handlers: StorageHandlers

  beforeEach(async () => {
    machine = new WatchedMachine()
    os = machine.os
    handlers = machine.handlers
    await os.files.makeDirectories(SOURCE)
  })

  describe('copies', () => {
    it('files, folders and links with their modes, owners and times', async () => {
      await os.files.put(`${SOURCE}/folder/script`, '#!/bin/sh')
      await os.files.chown(`${SOURCE}/folder/script`, 1000, 2000)
      await os.files.chmod(`${SOURCE}/folder/script`, 0o4750)
      await os.files.chmod(`${SOURCE}/folder`, 0o1777)
      await os.files.chmod(SOURCE, 0o700)
      await os.files.symlink('/etc/shadow', `${SOURCE}/out`)
      await machine.attach()
      expect(await treeOf(os.files, COPY)).toEqual({
        folder: '',
        'folder/script': '#!/bin/sh',
        out: '-> /etc/shadow',
      })
      const { modifiedNs } = await machine.statusOf(`${SOURCE}/folder/script`)
      const script = { mode: 0o4750, uid: 1000, gid: 2000, modifiedNs }
      expect(await machine.statusOf(`${COPY}/folder/script`)).toMatchObject(script)
      expect(await machine.statusOf(`${COPY}/folder`)).toMatchObject({ mode: 0o1777 })
      expect(await machine.statusOf(COPY)).toMatchObject({ mode: 0o700 })
    })

    it('into one shared tmpfs, which shows only the copies', async () => {
      await publish(os.files, SOURCE, '..v1', { key: 'one' })
      await machine.attach()
      await machine.attach({ mountPoint: `${WATCHED}/other` })
      expect(os.mounts.requests).toEqual([
        { source: 'tmpfs', target: WATCHED, type: 'tmpfs', flags: ['nosuid', 'nodev'], data: 'mode=755' },
      ])
      expect(await treeOf(os.files, COPY)).toEqual({
        '..data': '-> ..v1',
        '..v1': '',
        '..v1/key': 'one',
        key: '-> ..data/key',
      })
      expect(os.files.openFolders).toBe(0)
    })

    it('only files, folders and links', async () => {
      for (const kind of ['fifo', 'character', 'block', 'socket'] as const) {
        await os.files.makeSpecial(`${SOURCE}/${kind}`, { kind })
      }
      await os.files.put(`${SOURCE}/file`, 'x')
      await machine.attach()
      expect(await treeOf(os.files, COPY)).toEqual({ file: 'x' })
    })

    it('with the group of fs_group', async () => {
      await os.files.put(`${SOURCE}/file`, 'x')
      await machine.attach({ fsGroup: { groupId: 1000, groupChangePolicy: 0 }, options: ['bind', 'ro'] })
      expect(await machine.statusOf(`${COPY}/file`)).toMatchObject({ gid: 1000, mode: 0o644 })
      expect(await machine.statusOf(COPY)).toMatchObject({ gid: 1000, mode: 0o2777 })
      expect(await machine.statusOf(`${SOURCE}/file`)).toMatchObject({ gid: 0 })
    })
  })

  describe('mounts the source itself', () => {
    it.each([
      ['17 entries', () => files(17)],
      ['a file of more than 1 MiB', () => os.files.put(`${SOURCE}/big`, 'x'.repeat(1024 * 1024 + 1))],
      ['files of more than 1 MiB', () => files(2, 'x'.repeat(600_000))],
      ['a folder of very many names', () => links(1000)],
      ['a deep tree', () => os.files.makeDirectories(`${SOURCE}${'/d'.repeat(17)}`)],
      [
        'a file that cannot be read',
        async () => {
          await files(1)
          machine.refuseToRead('EIO')
        },
      ],
    ])('for %s', async (_name, prepare) => {
      await prepare()
      const attached = await machine.attach({ options: ['rbind', 'ro'] })
      expect(machine.binds()).toEqual([{ source: SOURCE, target: COPY }])
      expect(os.clock.sleeping).toBe(0)
      await handlers.release(attached)
      await machine.expectNothingLeft()
    })

    it('but not for up to 16 entries and 1 MiB', async () => {
      await files(16, 'x'.repeat(65_536))
      await machine.attach()
      expect(machine.binds()).toEqual([])
      expect(await treeOf(os.files, COPY)).toEqual(await treeOf(os.files, SOURCE))
    })

    it('permanently when it becomes too large', async () => {
      await files(16)
      const attached = await machine.attach({ options: [] })
      await os.files.write(`${SOURCE}/one-more`, '')
      await machine.round()
      expect(machine.binds()).toEqual([{ source: SOURCE, target: COPY }])
      expect(os.clock.sleeping).toBe(0)
      await handlers.release(attached)
      await machine.expectNothingLeft()
    })

    it('as soon as the mount succeeds', async () => {
      await machine.attach()
      await files(17)
      os.mounts.failWith = (_call, target) => (target === COPY ? 'ENOMEM' : undefined)
      await machine.round()
      await machine.round()
      expect(machine.warnings()).toEqual([`mount ${COPY}: ENOMEM`])
      os.mounts.failWith = () => undefined
      await machine.round()
      expect(machine.binds()).toEqual([{ source: SOURCE, target: COPY }])
    })
  })

  describe('release', () => {
    it('stops the poll loop and unmounts the tmpfs with the last copy', async () => {
      await os.files.put(`${SOURCE}/file`, 'x')
      const first = await machine.attach()
      const second = await machine.attach({ mountPoint: `${WATCHED}/other` })
      await handlers.release(first)
      expect(await os.files.list(WATCHED)).toEqual(['..staging-2', 'other'])
      await handlers.release(second)
      await machine.expectNothingLeft()
    })

    it('keeps a copy that has further references', async () => {
      await os.files.put(`${SOURCE}/file`, 'old')
      const [first, second] = [await machine.attach(), await machine.attach()]
      await handlers.release(first)
      await os.files.write(`${SOURCE}/file`, 'new')
      await machine.round()
      expect(await treeOf(os.files, COPY)).toEqual({ file: 'new' })
      await handlers.release(second)
      await machine.expectNothingLeft()
    })

    it('waits for a write in progress', async () => {
      const attached = await machine.attach()
      await os.files.put(`${SOURCE}/file`, 'x')
      const letGo = machine.holdBack('rename')
      await machine.round()
      const releasing = handlers.release(attached)
      await turn()
      expect(await os.files.lstat(COPY)).toBeDefined()
      letGo()
      await releasing
      await machine.expectNothingLeft()
    })

    it('does not wait for a host that does not answer, and ignores a late answer', async () => {
      const attached = await machine.attach()
      await files(17)
      const letGo = machine.holdBack('lstat')
      await machine.round()
      await handlers.release(attached)
      letGo()
      await turn()
      await machine.expectNothingLeft()
    })

    it('keeps a shared copy until the storages are cleared', async () => {
      await os.files.put(`${SOURCE}/file`, 'old')
      await handlers.release(await machine.attach({ shared: true }))
      await os.files.write(`${SOURCE}/file`, 'new')
      await machine.round()
      expect(await treeOf(os.files, COPY)).toEqual({ file: 'new' })
      await handlers.clear()
      await machine.expectNothingLeft()
    })

    it('replaces a copy that was removed from outside when it is requested again', async () => {
      await handlers.release(await machine.attach({ shared: true }))
      await os.files.removeTree(COPY)
      await os.mounts.unmount(WATCHED)
      await handlers.release(await machine.attach())
      expect(os.clock.sleeping).toBe(0)
    })

    it("keeps a watch root's folder that existed before", async () => {
      await os.files.makeDirectories(WATCHED)
      await handlers.release(await machine.attach())
      expect(os.mounts.isMountPoint(WATCHED)).toBe(false)
      expect(await os.files.list(WATCHED)).toEqual([])
    })
  })

  it.each([
    `${WATCHED}/a/b`,
    WATCHED,
    `${ROOT}/sandbox/volume`,
    `${WATCHED}/..staging-1`,
    `${ROOT}/watchable/volume`,
  ])('refuses the mount point %s', async (mountPoint) => {
    await expect(machine.attach({ mountPoint })).rejects.toMatchObject({
      code: 'INVALID_ARGUMENT',
      message: expect.stringContaining(`mount point "${mountPoint}": `),
    })
    await machine.expectNothingLeft()
  })

  it.each([
    ['of the other layout', `${SHARED}/passthrough/watchable/volume`],
    ["of a host without root's rights", `/run/user/1000${WATCHED}/volume`],
  ])('accepts the mount points %s, too', async (_name, mountPoint) => {
    await expect(machine.attach({ mountPoint })).resolves.toEqual({ mountPoints: [mountPoint] })
  })

  it.each(['', 'relative', '/', `${SOURCE}/..`, `${SHARED}/link`, `${SHARED}/link/`, `${SHARED}/fifo`])(
    'refuses the source %j',
    async (source) => {
      await os.files.symlink(SOURCE, `${SHARED}/link`)
      await os.files.makeSpecial(`${SHARED}/fifo`, { kind: 'fifo' })
      await expect(machine.attach({ source })).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' })
      await machine.expectNothingLeft()
    },
  )

  it('refuses the option loop', async () => {
    await expect(machine.attach({ options: ['loop'] })).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' })
    await machine.expectNothingLeft()
  })

  it.each(['makeDirectory', 'rename', 'symlink', 'chmod'] as const)(
    'leaves nothing behind when %s fails',
    async (name) => {
      await publish(os.files, SOURCE, '..v1', { key: 'one' })
      os.files[name] = async () => Promise.reject(kernelError(name, COPY, 'ENOSPC'))
      await expect(machine.attach()).rejects.toThrow('ENOSPC')
      await machine.expectNothingLeft()
    },
  )

  it.each(['lstat', 'readBytes'] as const)(
    'is over with its call when the host does not answer (%s)',
    async (name) => {
      await os.files.put(`${SOURCE}/file`, 'x')
      const call = new AbortController()
      const letGo = machine.holdBack(name)
      const attaching = handlers.attach([watchable()], 'c1', call.signal)
      await turn()
      call.abort(cancelled())
      await expect(attaching).rejects.toMatchObject({ code: 'CANCELLED' })
      letGo()
      await turn()
      await machine.expectNothingLeft()
    },
  )

  it('undoes all steps when its call is cancelled during the copy', async () => {
    await os.files.put(`${SOURCE}/file`, 'x')
    const call = new AbortController()
    os.files.onWrite = () => call.abort(cancelled())
    await expect(handlers.attach([watchable()], 'c1', call.signal)).rejects.toMatchObject({
      code: 'CANCELLED',
    })
    await machine.expectNothingLeft()
  })

  async function files(count: number, content = ''): Promise<void> {
    for (const [name] of Object.entries(keys(count, content)))
      await os.files.put(`${SOURCE}/${name}`, content)
  }

  async function links(count: number): Promise<void> {
    for (const name of Object.keys(keys(count, ''))) await os.files.symlink('x', `${SOURCE}/${name}`)
  }
})
