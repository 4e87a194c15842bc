import { constants } from 'node:os'
import { describe, expect, it } from 'vitest'
import { neverAborted } from '../../../src/base/abort.ts'
import { AgentError } from '../../../src/base/errors.ts'
import { encodeNamed, RecordKind } from '../../../src/os/supervisor/channel-record.ts'
import { VminitFreezer } from '../../../src/os/supervisor/freezer.ts'

const RESULT_AT = 40

function record(kind: number, name: string, errno = 0): Buffer {
  const bytes = encodeNamed(kind, name)
  bytes.writeInt32LE(errno, RESULT_AT)
  return bytes
}

/** A freezer whose commands a test reads, and answers by hand. */
function freezer(mountId = 7) {
  const commands: string[] = []
  const closed: number[] = []
  let opened = 10
  const told = (bytes: Buffer, fd?: number) => {
    const name = bytes.toString('latin1', 8, RESULT_AT).replace(/\0.*$/s, '')
    commands.push(
      [bytes.readUInt32LE(4), name, fd].filter((each) => each !== undefined && each !== '').join(' '),
    )
  }
  const made = new VminitFreezer({
    native: {
      openAt2: (_folder, path) => (path === '/missing' ? -constants.errno.ENOENT : ++opened),
      close: (fd) => closed.push(fd),
    },
    writer: {
      send: async (bytes) => told(bytes),
      post: (bytes) => told(bytes),
      sendDescriptors: (bytes, [fd]) => told(bytes, fd),
    },
    mountOf: () => mountId,
  })
  const answer = (name: string, errno = 0) => made.answered(record(RecordKind.FREEZE_RESULT, name, errno))
  const thawed = (name: string, errno = 0) => made.thawed(record(RecordKind.THAWED, name, errno))
  return { made, commands, closed, answer, thawed }
}

const MOUNT = { id: 7, mountPoint: '/data' }

describe('freezes by vminit', () => {
  it('are commands, each with its answer', async () => {
    const { made, commands, closed, answer } = freezer()
    const held = made.holdFileSystem('fs', MOUNT)
    answer('fs')
    await held
    const cgroup = made.holdCgroup('cgroup', '/sys/fs/cgroup/c/cgroup.freeze')
    answer('cgroup')
    await cgroup
    const armed = made.arm(1000)
    answer('')
    await armed
    const frozen = made.freeze('fs')
    answer('fs')
    await frozen
    const cgroupFrozen = made.freezeCgroup('cgroup')
    answer('cgroup')
    await cgroupFrozen
    expect(commands).toEqual([
      ...['27 fs 11', '28 cgroup 12', expect.stringMatching(/^29/), '30 fs', '30 cgroup'],
    ])
    expect(closed).toEqual([11, 12])
  })

  it('fail with the errno of vminit, which is no longer waited for', async () => {
    const { made, answer } = freezer()
    const frozen = made.freeze('fs')
    answer('fs', constants.errno.EBUSY)
    await expect(frozen).rejects.toMatchObject({ message: 'freeze fs: EBUSY', errno: 'EBUSY' })
    await expect(Promise.all([made.thaw('file systems', neverAborted)])).resolves.toEqual([
      { late: [], failed: [] },
    ])
  })

  it('hold no file system that another mount hides, and none that is missing', async () => {
    const { made, commands, closed } = freezer(8)
    await expect(made.holdFileSystem('fs', MOUNT)).rejects.toMatchObject({ errno: 'ENOENT' })
    await expect(made.holdCgroup('c', '/missing')).rejects.toMatchObject({ message: 'open /missing: ENOENT' })
    expect({ commands, closed }).toEqual({ commands: [], closed: [11] })
  })

  it('are thawed when vminit says so, which may be a failure of one', async () => {
    const { made, answer, thawed } = freezer()
    let times = 0
    made.onThawed(() => {
      times += 1
    })
    for (const name of ['a', 'b']) {
      const frozen = made.freeze(name)
      answer(name)
      await frozen
    }
    const thawing = made.thaw('all', neverAborted)
    thawed('b', constants.errno.EINVAL)
    thawed('a')
    expect(times).toBe(0)
    thawed('')
    await expect(thawing).resolves.toEqual({ late: [], failed: [{ name: 'b', errno: 'EINVAL' }] })
    expect(times).toBe(1)
  })

  it('name what is not thawed in time', async () => {
    const { made, answer, thawed } = freezer()
    for (const name of ['a', 'b']) {
      const frozen = made.freeze(name)
      answer(name)
      await frozen
    }
    const late = new AbortController()
    const thawing = made.thaw('all', late.signal)
    thawed('a')
    await Promise.resolve()
    late.abort()
    await expect(thawing).resolves.toEqual({ late: ['b'], failed: [] })
  })

  it('that are under way end when vminit thaws everything, or is gone', async () => {
    const { made, thawed } = freezer()
    const first = made.freeze('a')
    thawed('')
    await expect(first).rejects.toMatchObject({ errno: 'ECANCELED' })
    const second = made.freeze('b')
    made.fail(new AgentError('FAILED_PRECONDITION', 'vminit is gone'))
    await expect(second).rejects.toThrow('vminit is gone')
  })
})
