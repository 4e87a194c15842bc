import { describe, expect, it } from 'vitest'
import { neverAborted } from '../../../src/base/abort.ts'
import { AgentError } from '../../../src/base/errors.ts'
import { jsonLogger } from '../../../src/base/log.ts'
import { Quiesce } from '../../../src/handlers/quiesce/quiesce.ts'
import type { MountEntry } from '../../../src/os/files/mounts.ts'
import { type Machine, machineWithContainer } from '../../support/handlers/machine.ts'
import { isPending } from '../../support/pending.ts'

const FREEZER = '/sys/fs/cgroup/freezer/containers/c1/freezer.state'
const CALL = { signal: neverAborted }

function disk(mountPoint: string, minor: number, more: Partial<MountEntry> = {}): MountEntry {
  return {
    id: 100 + minor,
    parentId: 21,
    mountPoint,
    type: 'ext4',
    source: `/dev/vd${minor}`,
    options: 'rw',
    isReadOnly: false,
    major: 254,
    minor,
    ...more,
  }
}

interface Pod extends Machine {
  readonly quiesce: Quiesce
  readonly lines: string[]
  events(): readonly unknown[]
}

/** A container that runs, and two disks. */
async function pod(
  options: {
    readonly mounts?: readonly MountEntry[]
    readonly ownPaths?: readonly string[]
    readonly below?: string
  } = {},
): Promise<Pod> {
  const made = await machineWithContainer()
  await made.os.files.put(FREEZER, 'THAWED\n')
  made.os.mounts.entries.push(...(options.mounts ?? [disk('/run/kata-containers/a', 1), disk('/data', 2)]))
  const lines: string[] = []
  const { os, context } = made
  const quiesce = new Quiesce({
    os,
    log: jsonLogger({ sink: (line) => lines.push(line), level: () => 'info', version: '0', pid: 1 }),
    events: context.events,
    containers: context.containers,
    ownPaths: options.ownPaths ?? ['/', '/run/microvm-agent'],
    below: options.below,
  })
  const events = () =>
    context.events
      .after(0n, 10)
      .events.flatMap(({ freezeChanged }) => (freezeChanged === undefined ? [] : [freezeChanged]))
  return { ...made, quiesce, lines, events }
}

const FROZEN = { containers: ['c1'], fileSystems: ['/data', '/run/kata-containers/a'] }
const HELD = [
  'hold file-system-0 /data',
  'hold file-system-1 /run/kata-containers/a',
  `hold cgroup-0 ${FREEZER}`,
]

describe('Quiesce', () => {
  it('gives vminit what it thaws by, then freezes containers, then disks innermost first', async () => {
    const { quiesce, os, events } = await pod()
    const states: string[] = []
    os.freezer.before = async () => void states.push((await os.files.readText(FREEZER)).trim())
    await expect(quiesce.quiesce({ timeoutMs: 30_000 }, CALL)).resolves.toEqual(FROZEN)
    expect(os.freezer.commands).toEqual([
      ...HELD,
      ...['arm 30000', 'freeze cgroup-0', 'freeze file-system-0', 'freeze file-system-1'],
    ])
    expect(states).toEqual(['THAWED', 'THAWED', 'THAWED', 'THAWED', 'THAWED', 'FROZEN', 'FROZEN'])
    expect(quiesce.frozen).toEqual({ ...FROZEN, thawInMs: 30_000 })
    expect(events()).toEqual([{ action: 'frozen', reason: '' }])
  })

  it.each([0, 60_000])('of %i ms lasts a minute', async (timeoutMs) => {
    const { quiesce, os } = await pod()
    await quiesce.quiesce({ timeoutMs }, CALL)
    expect(os.freezer.commands).toContain('arm 60000')
  })

  it('refuses a longer time', async () => {
    const { quiesce, os } = await pod()
    await expect(quiesce.quiesce({ timeoutMs: 60_001 }, CALL)).rejects.toMatchObject({
      code: 'INVALID_ARGUMENT',
      message: 'timeout_ms: 60001, want at most 60000',
    })
    expect(os.freezer.commands).toEqual([])
  })

  it('refuses a pod that is frozen, until it is thawed', async () => {
    const { quiesce, os } = await pod()
    await quiesce.quiesce({ timeoutMs: 0 }, CALL)
    await expect(quiesce.quiesce({ timeoutMs: 0 }, CALL)).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
    })
    await expect(quiesce.thaw()).resolves.toEqual({ wasFrozen: true })
    await expect(quiesce.thaw()).resolves.toEqual({ wasFrozen: false })
    await os.files.put(FREEZER, 'THAWED\n')
    await expect(quiesce.quiesce({ timeoutMs: 0 }, CALL)).resolves.toEqual(FROZEN)
  })

  it('leaves a container that is paused, and one without a cgroup', async () => {
    const { quiesce, os } = await pod({ mounts: [] })
    await os.files.put(FREEZER, 'FROZEN\n')
    await expect(quiesce.quiesce({ timeoutMs: 0 }, CALL)).resolves.toEqual({
      containers: [],
      fileSystems: [],
    })
    expect(os.freezer.commands).toEqual(['arm 60000'])
  })

  it('freezes writable disks alone, each once, by the mount that no other one hides', async () => {
    const hidden = disk('/hidden', 3)
    const { quiesce, os } = await pod({
      mounts: [
        hidden,
        disk('/read-only', 4, { isReadOnly: true }),
        disk('/shared', 0, { type: 'virtiofs', source: 'tag', major: 0 }),
        disk('/tmpfs', 0, { type: 'tmpfs', source: 'tmpfs', major: 0 }),
        { ...hidden, id: 200, mountPoint: '/seen' },
        disk('/btrfs', 33, { type: 'btrfs', major: 0 }),
      ],
    })
    os.freezer.failWith = (command) => (command.endsWith(' /hidden') ? 'ENOENT' : undefined)
    await quiesce.quiesce({ timeoutMs: 0 }, CALL)
    expect(os.freezer.commands.slice(0, 3)).toEqual([
      ...['hold file-system-0 /btrfs', 'hold file-system-1 /hidden', 'hold file-system-1 /seen'],
    ])
  })

  it('asks for the way below a server first', async () => {
    const server = disk('/shared', 9, { type: 'virtiofs', major: 0 })
    const { quiesce, os } = await pod({ mounts: [server, disk('/shared/disk', 1, { parentId: server.id })] })
    os.mounts.reach = async (folder: string) => {
      throw new AgentError('DEADLINE_EXCEEDED', `reach ${folder}`, { errno: 'ETIMEDOUT' })
    }
    await expect(quiesce.quiesce({ timeoutMs: 0 }, CALL)).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
      message:
        'file system /shared/disk (/dev/vd1): the server of a file system on the way to it does not answer',
    })
    expect(os.freezer.commands).toEqual(['thaw all'])
  })

  it('refuses the disk that holds files of the agent', async () => {
    const { quiesce, os } = await pod({ mounts: [disk('/run', 1), disk('/other', 2)] })
    await expect(quiesce.quiesce({ timeoutMs: 0 }, CALL)).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
      message: 'file system /run (/dev/vd1): holds /run/microvm-agent of the agent',
    })
    expect(os.freezer.commands).toEqual(['thaw all'])
    expect(quiesce.frozen).toBeUndefined()
  })

  it('looks below its own folder alone where other programs have disks, too', async () => {
    const foreign = disk('/foreign', 5)
    const bound = { ...foreign, id: 300, mountPoint: '/run/kata-containers/c1/rootfs' }
    const mounts = [foreign, bound, disk('/run/kata-containers/a', 1)]
    const { quiesce } = await pod({ mounts, below: '/run/kata-containers' })
    const { fileSystems } = await quiesce.quiesce({ timeoutMs: 0 }, CALL)
    expect(fileSystems).toEqual(['/run/kata-containers/a'])
  })

  it.each([
    ['hold file-system-0', 'EPERM', 'FAILED_PRECONDITION', 'file system /data (/dev/vd2): it holds /'],
    ['hold file-system-0', 'EBUSY', 'FAILED_PRECONDITION', /\(\/dev\/vd2\): vminit still thaws/],
    ['hold file-system-1', 'ENOSPC', 'RESOURCE_EXHAUSTED', /room for 32 file systems/],
    ['hold cgroup-0', 'ENOSPC', 'RESOURCE_EXHAUSTED', /^container c1: vminit has room/],
    ['freeze file-system-0', 'EBUSY', 'FAILED_PRECONDITION', /\/data .*: frozen by another program already/],
    ['freeze file-system-1', 'EOPNOTSUPP', 'FAILED_PRECONDITION', /\/a .*: its type cannot be frozen/],
    [
      'freeze file-system-1',
      'EIO',
      'INTERNAL',
      /^file system \/run\/kata-containers\/a \(\/dev\/vd1\): .*EIO/,
    ],
    [
      'freeze file-system-1',
      'ECANCELED',
      'DEADLINE_EXCEEDED',
      /\/a \(\/dev\/vd1\): not frozen within 60000 ms/,
    ],
    ['freeze cgroup-0', 'ECANCELED', 'DEADLINE_EXCEEDED', 'container c1: not frozen within 60000 ms'],
    ['freeze cgroup-0', 'ENODEV', 'INTERNAL', /ENODEV/],
    ['arm', 'EAGAIN', 'INTERNAL', /EAGAIN/],
  ])('undoes itself when `%s` is %s', async (command, errno, code, message) => {
    const { quiesce, os, events } = await pod()
    os.freezer.failWith = (each) => (each.startsWith(command) ? errno : undefined)
    await expect(quiesce.quiesce({ timeoutMs: 0 }, CALL)).rejects.toMatchObject({
      code,
      message: typeof message === 'string' ? message : expect.stringMatching(message),
    })
    expect(os.freezer.commands.at(-1)).toBe('thaw all')
    expect(quiesce.frozen).toBeUndefined()
    expect(events()).toEqual([])
  })

  it('leaves every write of a freeze file to vminit, which thaws after it', async () => {
    const { quiesce, os } = await pod()
    os.freezer.failWith = (command) => (command === 'freeze cgroup-0' ? 'ECANCELED' : undefined)
    await expect(quiesce.quiesce({ timeoutMs: 1 }, CALL)).rejects.toThrow('not frozen within 1 ms')
    expect((await os.files.readText(FREEZER)).trim()).toBe('THAWED')
  })

  it('asks on v1 again until all processes are frozen', async () => {
    const { quiesce, os } = await pod()
    const { write } = os.files
    let writes = 0
    os.files.write = (path, data) => write.call(os.files, path, ++writes < 3 ? 'FREEZING\n' : data)
    const quiescing = quiesce.quiesce({ timeoutMs: 0 }, CALL)
    for (let look = 0; look < 3; look++) {
      await isPending(quiescing)
      os.clock.advance(10)
    }
    await expect(quiescing).resolves.toEqual(FROZEN)
    expect(os.freezer.commands.filter((each) => each === 'freeze cgroup-0')).toHaveLength(3)
  })

  it('names a container that cannot be frozen', async () => {
    const { quiesce, os } = await pod()
    const { write } = os.files
    os.files.write = async (path, data) => write.call(os.files, path, data === 'FROZEN' ? 'FREEZING\n' : data)
    await os.files.put('/sys/fs/cgroup/freezer/containers/c1/cgroup.procs', '70\n71\n')
    await os.files.put('/proc/70/stat', '70 (sh) D 1')
    await os.files.put('/proc/70/wchan', 'request_wait_answer')
    await os.files.put('/proc/71/stat', '71 (sh) D 1')
    await os.files.put('/proc/71/wchan', '__refrigerator')
    const quiescing = quiesce.quiesce({ timeoutMs: 0 }, CALL)
    expect(await isPending(quiescing)).toBe(true)
    os.clock.advance(5000)
    await expect(quiescing).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
      message: 'container c1: not frozen within 5 s: no disk or server answers process 70',
    })
    expect(os.freezer.commands.at(-1)).toBe('thaw all')
  })

  it('thaws when a disk does not answer within the bound', async () => {
    const { quiesce, os } = await pod()
    os.freezer.before = async (command) => {
      if (command === 'freeze file-system-0') await new Promise(() => {})
    }
    const quiescing = quiesce.quiesce({ timeoutMs: 1000 }, CALL)
    expect(await isPending(quiescing)).toBe(true)
    os.clock.advance(3000)
    await expect(quiescing).rejects.toMatchObject({
      code: 'DEADLINE_EXCEEDED',
      message: 'file system /data (/dev/vd2): not frozen within 1000 ms',
    })
    expect(os.freezer.commands.at(-1)).toBe('thaw all')
  })

  it('thaws when its caller hangs up', async () => {
    const { quiesce, os } = await pod()
    const hangup = new AbortController()
    os.freezer.before = async (command) => {
      if (command === 'freeze file-system-1') hangup.abort(new AgentError('CANCELLED', 'gone'))
    }
    await expect(quiesce.quiesce({ timeoutMs: 0 }, { signal: hangup.signal })).rejects.toThrow('gone')
    expect(os.freezer.commands.at(-1)).toBe('thaw all')
  })

  it('fails when vminit has thawed before it was done', async () => {
    const { quiesce, os } = await pod()
    os.freezer.before = async (command) => {
      if (command === 'freeze file-system-1') os.freezer.thawed()
    }
    await expect(quiesce.quiesce({ timeoutMs: 50 }, CALL)).rejects.toThrow('the pod: not frozen within 50 ms')
    expect(quiesce.frozen).toBeUndefined()
  })
})

describe('a frozen pod', () => {
  it('is thawed by vminit when its time is over, and says so', async () => {
    const { quiesce, os, events, lines } = await pod()
    await quiesce.quiesce({ timeoutMs: 10 }, CALL)
    os.freezer.thawed()
    expect(quiesce.frozen).toBeUndefined()
    expect(events().at(-1)).toEqual({ action: 'thawed', reason: 'bound' })
    expect(lines.at(-1)).toContain('"level":"WARN"')
    await expect(quiesce.thaw()).resolves.toEqual({ wasFrozen: false })
  })

  it('was not frozen all the time when another program has thawed a disk', async () => {
    const { quiesce, os } = await pod()
    await quiesce.quiesce({ timeoutMs: 0 }, CALL)
    os.freezer.outcome = { late: [], failed: [{ name: 'file-system-0', errno: 'EINVAL' }] }
    await expect(quiesce.thaw()).resolves.toEqual({ wasFrozen: false })
  })

  it('names a disk that does not answer to a thaw', async () => {
    const { quiesce, os } = await pod()
    await quiesce.quiesce({ timeoutMs: 0 }, CALL)
    os.freezer.outcome = { late: ['file-system-0'], failed: [] }
    await expect(quiesce.thaw()).rejects.toMatchObject({
      code: 'INTERNAL',
      message: 'file system /data (/dev/vd2): not thawed within 10 s: its disk does not answer',
    })
    await expect(quiesce.serve('CopyFile', 'refuse', async () => 1)).rejects.toThrow('the pod is frozen')
    os.freezer.thawed()
    await expect(quiesce.serve('CopyFile', 'refuse', async () => 1)).resolves.toBe(1)
  })

  it('refuses calls that may write to disks, serves others, and is thawed by the end of the sandbox', async () => {
    const { quiesce, events } = await pod()
    await quiesce.quiesce({ timeoutMs: 0 }, CALL)
    await expect(quiesce.serve('grpc.AgentService/CopyFile', 'refuse', async () => 1)).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
      message: 'grpc.AgentService/CopyFile: the pod is frozen, want Lifecycle/Thaw first',
    })
    await expect(quiesce.serve('Check', 'serve', async () => 1)).resolves.toBe(1)
    await expect(quiesce.serve('DestroySandbox', 'thaw', async () => quiesce.frozen)).resolves.toBeUndefined()
    expect(events().at(-1)).toEqual({ action: 'thawed', reason: 'end of the sandbox' })
  })

  it('is not begun while such a call is under way, which it names', async () => {
    const { quiesce } = await pod()
    const { promise, resolve } = Promise.withResolvers<void>()
    const copying = quiesce.serve('CopyFile', 'refuse', () => promise)
    await expect(quiesce.quiesce({ timeoutMs: 0 }, CALL)).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
      message: 'CopyFile: under way, and may write to disks',
    })
    resolve()
    await copying
    await expect(quiesce.quiesce({ timeoutMs: 0 }, CALL)).resolves.toEqual(FROZEN)
  })

  it('is thawed by a call during the freeze, which then fails', async () => {
    const { quiesce, os } = await pod()
    const { promise, resolve } = Promise.withResolvers<void>()
    os.freezer.before = async (command) => {
      if (command === 'freeze file-system-0') await promise
    }
    const quiescing = quiesce.quiesce({ timeoutMs: 0 }, CALL)
    expect(await isPending(quiescing)).toBe(true)
    await expect(quiesce.thaw()).resolves.toEqual({ wasFrozen: false })
    await expect(quiescing).rejects.toMatchObject({ code: 'ABORTED' })
    resolve()
  })
})

describe('a frozen pod after a restore', () => {
  it('has its disks thawed first, and its containers once the guest is ready', async () => {
    const { quiesce, os, events } = await pod()
    await quiesce.quiesce({ timeoutMs: 5000 }, CALL)
    os.clock.advance(3000)
    os.freezer.commands.length = 0
    await quiesce.resumed({ holdsContainers: true })
    expect(os.freezer.commands).toEqual(['arm 5000', 'thaw file systems'])
    expect(quiesce.frozen).toEqual({ containers: ['c1'], fileSystems: [], thawInMs: 5000 })
    await quiesce.ready()
    expect(os.freezer.commands.at(-1)).toBe('thaw all')
    expect(quiesce.frozen).toBeUndefined()
    expect(events().slice(1)).toEqual([
      { action: 'file systems thawed', reason: 'resume' },
      { action: 'thawed', reason: 'resume' },
    ])
  })

  it('is thawed at once where containers are not held', async () => {
    const { quiesce, os } = await pod()
    await quiesce.quiesce({ timeoutMs: 5000 }, CALL)
    await quiesce.resumed({ holdsContainers: false })
    expect(os.freezer.commands.at(-1)).toBe('thaw all')
    expect(quiesce.frozen).toBeUndefined()
  })

  it('is not armed again when its time was over meanwhile', async () => {
    const { quiesce, os } = await pod()
    await quiesce.quiesce({ timeoutMs: 5000 }, CALL)
    os.freezer.before = async (command) => {
      if (command === 'arm 5000') os.freezer.thawed()
    }
    await quiesce.resumed({ holdsContainers: true })
    expect(os.freezer.commands.slice(-2)).toEqual(['arm 5000', 'thaw all'])
    expect(quiesce.frozen).toBeUndefined()
  })

  it('is left alone when it is not frozen', async () => {
    const { quiesce, os } = await pod()
    await quiesce.resumed({ holdsContainers: true })
    await quiesce.ready()
    expect(os.freezer.commands).toEqual([])
  })
})
