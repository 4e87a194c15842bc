import { beforeEach, describe, expect, it } from 'vitest'
import { cancelled, neverAborted } from '../../../src/base/abort.ts'
import { silentLogger } from '../../../src/base/log.ts'
import { UndoList } from '../../../src/base/undo.ts'
import { GuestSysctls } from '../../../src/handlers/container/guest-sysctls.ts'
import { kernelError } from '../../../src/os/errors.ts'
import { FakeOs } from '../../support/fakes/fake-os.ts'

const PATH = '/proc/sys/net/core/somaxconn'

describe('GuestSysctls', () => {
  let os: FakeOs
  let sysctls: GuestSysctls

  beforeEach(async () => {
    os = new FakeOs()
    sysctls = new GuestSysctls(os.files)
    await os.files.put(PATH, '128')
  })

  it('restores the value when the creation fails', async () => {
    const first = await set('1')
    expect(await value()).toBe('1')
    await first.fail()
    expect(await value()).toBe('128')
  })

  it('keeps the value that another container sets later', async () => {
    const first = await set('1')
    await set('2')
    await first.fail()
    expect(await value()).toBe('2')
  })

  it('restores the original value when two creations fail, in either order', async () => {
    const [first, second] = [await set('1'), await set('2')]
    await first.fail()
    await second.fail()
    expect(await value()).toBe('128')
    const [third, fourth] = [await set('3'), await set('4')]
    await fourth.fail()
    expect(await value()).toBe('3')
    await third.fail()
    expect(await value()).toBe('128')
  })

  it('restores the value of a container that is removed meanwhile', async () => {
    const first = await set('1')
    const second = await set('2')
    await first.remove()
    await second.fail()
    expect(await value()).toBe('1')
  })

  it('sets the values of concurrent creations one after the other', async () => {
    const [first, second] = await Promise.all([set('1'), set('2')])
    expect(await value()).toBe('2')
    await Promise.all([second.fail(), first.fail()])
    expect(await value()).toBe('128')
  })

  it('continues after a value that the kernel refuses', async () => {
    os.files.onWrite = (path, data) => {
      if (data === 'x') throw kernelError('write', path, 'EINVAL')
    }
    await expect(set('x')).rejects.toThrow(`write ${PATH}: EINVAL`)
    const next = await set('5')
    await next.fail()
    expect(await value()).toBe('128')
  })

  it('sets nothing for an aborted call', async () => {
    await expect(set('1', AbortSignal.abort(cancelled()))).rejects.toMatchObject({ code: 'CANCELLED' })
    expect(await value()).toBe('128')
  })

  const value = () => os.files.readText(PATH)

  /** Sets the value as a creation does, which may then fail or whose container may be removed. */
  async function set(value: string, signal = neverAborted) {
    const [onFailure, onRemove] = [new UndoList(silentLogger()), new UndoList(silentLogger())]
    await sysctls.set([{ path: PATH, value }], { onFailure, onRemove }, signal)
    return {
      fail: async () => {
        await onFailure.run()
        await onRemove.run()
      },
      remove: () => onRemove.run(),
    }
  }
})
