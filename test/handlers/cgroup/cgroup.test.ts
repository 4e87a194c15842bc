import { describe, expect, it, vi } from 'vitest'
import { silentLogger } from '../../../src/base/log.ts'
import { cgroupAt } from '../../../src/handlers/cgroup/cgroup.ts'
import { usesCgroupV2 } from '../../../src/os/cgroup/hierarchies.ts'
import { kernelError } from '../../../src/os/errors.ts'
import { FakeOs } from '../../support/fakes/fake-os.ts'

const V1 = '/sys/fs/cgroup/freezer/pod/c1'
const V2 = '/sys/fs/cgroup/pod/c1'

async function machine(files: Readonly<Record<string, string>>) {
  const os = new FakeOs()
  for (const [path, text] of Object.entries(files)) await os.files.put(path, text)
  for (const pid of [11, 12, 13]) os.system.processes.add(pid)
  return os
}

const killed = (os: FakeOs) => os.system.signals.map(({ pid, signal }) => [pid, signal])

describe('killAll', () => {
  it('writes cgroup.kill on v2', async () => {
    const os = await machine({ [`${V2}/cgroup.kill`]: '', [`${V2}/cgroup.procs`]: '11\n' })
    await cgroupAt(os, '/pod/c1', true, silentLogger()).killAll()
    expect(await os.files.readText(`${V2}/cgroup.kill`)).toBe('1')
    expect(killed(os)).toEqual([])
  })

  it('thaws a frozen cgroup on v2, because no runtime deletes a frozen container', async () => {
    const os = await machine({ [`${V2}/cgroup.kill`]: '', [`${V2}/cgroup.freeze`]: '1' })
    await cgroupAt(os, '/pod/c1', true, silentLogger()).killAll()
    expect(await os.files.readText(`${V2}/cgroup.freeze`)).toBe('0')
  })

  it('freezes, then kills each process on v2 without cgroup.kill', async () => {
    const os = await machine({ [`${V2}/cgroup.freeze`]: '0', [`${V2}/cgroup.procs`]: '11\n12\n' })
    await cgroupAt(os, '/pod/c1', true, silentLogger()).killAll()
    expect(killed(os)).toEqual([
      [11, 9],
      [12, 9],
    ])
    expect(await os.files.readText(`${V2}/cgroup.freeze`)).toBe('0')
  })

  it('kills processes in cgroups below while frozen, then thaws, on v1', async () => {
    const os = await machine({
      [`${V1}/cgroup.procs`]: '11\n0\n',
      [`${V1}/below/cgroup.procs`]: '12\n99\n',
      [`${V1}/freezer.state`]: 'THAWED',
    })
    const states: Promise<string>[] = []
    os.system.onKill = () => states.push(os.files.readText(`${V1}/freezer.state`))
    await cgroupAt(os, '/pod/c1', false, silentLogger()).killAll()
    expect(killed(os)).toEqual([
      [11, 9],
      [12, 9],
    ])
    expect(await Promise.all(states)).toEqual(['FROZEN', 'FROZEN'])
    expect(await os.files.readText(`${V1}/freezer.state`)).toBe('THAWED')
  })

  it.each([true, false])('thaws what the container has frozen below its cgroup (v2: %s)', async (isV2) => {
    const [folder, file, frozen, thawed] = isV2
      ? [V2, 'cgroup.freeze', '1', '0']
      : [V1, 'freezer.state', 'FROZEN', 'THAWED']
    const own = `${folder}/below/its-own/${file}`
    const os = await machine({ [own]: frozen, [`${folder}/cgroup.procs`]: '' })
    await cgroupAt(os, '/pod/c1', isV2, silentLogger()).killAll()
    expect(await os.files.readText(own)).toBe(thawed)
  })

  it('lists no cgroup that has none below it, by its links', async () => {
    const os = await machine({
      [`${V1}/below/cgroup.procs`]: '12\n',
      [`${V1}/freezer.state`]: 'THAWED',
    })
    const listed = vi.spyOn(os.files, 'listFolders')
    await cgroupAt(os, '/pod/c1', false, silentLogger()).killAll()
    expect(new Set(listed.mock.calls.map(([path]) => path))).toEqual(new Set([V1]))
    expect(killed(os)).toEqual([[12, 9]])
  })

  it.each(['ENOENT', 'ENODEV'])(
    'kills the other processes when a cgroup is removed meanwhile (%s)',
    async (errno) => {
      const os = await machine({
        [`${V1}/cgroup.procs`]: '11\n',
        [`${V1}/below/cgroup.procs`]: '',
        [`${V1}/last/cgroup.procs`]: '12\n',
        [`${V1}/freezer.state`]: 'THAWED',
      })
      const { readText } = os.files
      vi.spyOn(os.files, 'readText').mockImplementation(async (path) => {
        if (path === `${V1}/below/cgroup.procs`) throw kernelError('read', path, errno)
        return readText.call(os.files, path)
      })
      await cgroupAt(os, '/pod/c1', false, silentLogger()).killAll()
      expect(killed(os)).toEqual([
        [11, 9],
        [12, 9],
      ])
    },
  )

  it('kills processes that are forked before the freezer takes effect', async () => {
    const os = await machine({ [`${V1}/cgroup.procs`]: '11\n' })
    let forked = Promise.resolve()
    os.system.onKill = (pid) => {
      if (pid === 11) forked = os.files.write(`${V1}/cgroup.procs`, '11\n13\n')
    }
    await cgroupAt(os, '/pod/c1', false, silentLogger()).killAll()
    await forked
    expect(killed(os)).toEqual([
      [11, 9],
      [13, 9],
    ])
  })

  it.each<[string, Record<string, string>, readonly string[]]>([
    ['an empty cgroup alone', { 'freezer.state': 'THAWED\n', 'cgroup.procs': '' }, []],
    ['no cgroup of a process', { 'freezer.state': 'THAWED\n', 'cgroup.procs': '0\n' }, ['FROZEN', 'THAWED']],
    ['no frozen cgroup', { 'freezer.state': 'FROZEN\n', 'cgroup.procs': '' }, ['FROZEN', 'THAWED']],
    [
      'no cgroup with others below it',
      { 'freezer.state': 'THAWED\n', 'cgroup.procs': '', 'below/cgroup.procs': '' },
      ['FROZEN', 'THAWED', 'THAWED'],
    ],
  ])('leaves %s on v1', async (_, files, expected) => {
    const entries = Object.entries(files).map(([name, text]) => [`${V1}/${name}`, text])
    const os = await machine(Object.fromEntries(entries))
    const write = vi.spyOn(os.files, 'write')
    await cgroupAt(os, '/pod/c1', false, silentLogger()).killAll()
    expect(write.mock.calls.map(([, value]) => value)).toEqual(expected)
  })

  it.each([
    ['populated 0\nfrozen 0\n', []],
    ['populated 0\nfrozen 1\n', [`${V2}/cgroup.kill`, `${V2}/cgroup.freeze`]],
    ['populated 1\nfrozen 0\n', [`${V2}/cgroup.kill`, `${V2}/cgroup.freeze`]],
  ])('does nothing to a cgroup of v2 that is empty and not frozen (%j)', async (events, written) => {
    const os = await machine({ [`${V2}/cgroup.events`]: events, [`${V2}/cgroup.kill`]: '' })
    const writes: string[] = []
    os.files.onWrite = (path) => void writes.push(path)
    await cgroupAt(os, '/pod/c1', true, silentLogger()).killAll()
    expect(writes).toEqual(written)
  })

  it.each([true, false])('treats a missing cgroup as empty (v2: %s)', async (isV2) => {
    const os = await machine({})
    await cgroupAt(os, '/pod/c1', isV2, silentLogger()).killAll()
    expect(killed(os)).toEqual([])
  })
})

describe('remove', () => {
  it('removes the cgroup in every hierarchy of v1, the deepest folder first', async () => {
    const os = await machine({})
    await os.files.makeDirectories('/sys/fs/cgroup/memory/pod/c1/below')
    await os.files.makeDirectories(V1)
    await cgroupAt(os, '/pod/c1', false, silentLogger()).remove()
    expect(await os.files.list('/sys/fs/cgroup/memory/pod')).toEqual([])
    expect(await os.files.list('/sys/fs/cgroup/freezer/pod')).toEqual([])
  })

  it('removes the cgroup in a hierarchy of v1 that has several names', async () => {
    const os = await machine({})
    await os.files.makeDirectories('/sys/fs/cgroup/cpu,cpuacct/pod/c1')
    for (const name of ['cpu', 'cpuacct']) await os.files.symlink('cpu,cpuacct', `/sys/fs/cgroup/${name}`)
    await cgroupAt(os, '/pod/c1', false, silentLogger()).remove()
    expect(await os.files.list('/sys/fs/cgroup/cpu,cpuacct/pod')).toEqual([])
  })

  it('retries after a while where the kernel has no watch left', async () => {
    const os = await machine({ [`${V2}/cgroup.procs`]: '' })
    let tries = 0
    os.files.removeDirectory = async (path) => {
      tries += 1
      if (tries < 4) throw kernelError('rmdir', path, 'EBUSY')
    }
    const removed = cgroupAt(os, '/pod/c1', true, silentLogger()).remove()
    await expect.poll(() => os.clock.sleeping).toBe(2)
    os.clock.advance(10)
    await removed
    expect(tries).toBe(4)
  })
})

describe.each([
  ['v1', V1],
  ['v2', V2],
])('remove, while killed processes are still exiting (%s)', (_name, folder) => {
  const isV2 = folder === V2

  async function busyMachine() {
    const os = await machine({ [`${folder}/cgroup.events`]: 'populated 1\n' })
    const busy = { is: true }
    os.files.removeDirectory = async (path) => {
      if (busy.is) throw kernelError('rmdir', path, 'EBUSY')
      await os.files.removeTree(path)
    }
    return { os, busy, removed: cgroupAt(os, '/pod/c1', isV2, silentLogger()).remove() }
  }

  it('retries until they have exited', async () => {
    const { os, busy, removed } = await busyMachine()
    await expect.poll(() => os.clock.sleeping).toBe(isV2 ? 1 : 2)
    busy.is = false
    if (isV2) os.cgroupEvents.happen(`${V2}/cgroup.events`)
    else os.clock.advance(10)
    await removed
    expect(os.files.has(folder)).toBe(false)
    expect([os.clock.sleeping, os.cgroupEvents.watched]).toEqual([0, []])
  })

  it('throws EBUSY when one does not exit in time', async () => {
    const { os, removed } = await busyMachine()
    const refused = expect(removed).rejects.toMatchObject({ errno: 'EBUSY' })
    await expect.poll(() => os.clock.sleeping).toBe(isV2 ? 1 : 2)
    os.clock.advance(60_000)
    await refused
    expect([os.clock.sleeping, os.cgroupEvents.watched]).toEqual([0, []])
  })
})

describe('isEmpty', () => {
  it.each([
    ['a missing cgroup', {}, true],
    ['a cgroup without processes', { 'cgroup.procs': '', 'below/cgroup.procs': '' }, true],
    ['a cgroup with a process', { 'cgroup.procs': '11\n' }, false],
    [
      'a cgroup with a process below it',
      { 'cgroup.procs': '', 'a/cgroup.procs': '', 'a/b/cgroup.procs': '11\n' },
      false,
    ],
  ])('checks the whole subtree: %s', async (_what, files, expected) => {
    for (const [folder, isV2] of [
      [V1, false],
      [V2, true],
    ] as const) {
      const placed = Object.entries(files).map(([name, text]) => [`${folder}/${name}`, text])
      const os = await machine(Object.fromEntries(placed))
      expect(await cgroupAt(os, '/pod/c1', isV2, silentLogger()).isEmpty()).toBe(expected)
    }
  })
})

describe('innerPathOf', () => {
  const innerPath = async (text: string, isV2 = true) => {
    const os = await machine({ '/proc/11/cgroup': text })
    return cgroupAt(os, '/pod/c1', isV2, silentLogger()).innerPathOf(11)
  }

  it.each([
    ['a process that has moved below', '0::/pod/c1/init.scope\n', '/init.scope'],
    ['a process two levels below', '0::/pod/c1/a/b\n', '/a/b'],
    ['a process in the cgroup itself', '0::/pod/c1\n', ''],
    ['a process in another cgroup with a similar name', '0::/pod/c10/init\n', ''],
    ['a process that has ended', '', ''],
  ])('returns the path below the cgroup on v2: %s', async (_what, text, expected) => {
    expect(await innerPath(text)).toBe(expected)
  })

  it('is empty on v1, where a process may join any cgroup', async () => {
    expect(await innerPath('4:memory:/pod/c1/init\n0::/pod/c1/init\n', false)).toBe('')
  })

  it('is empty when the cgroup of the process cannot be read', async () => {
    expect(await cgroupAt(await machine({}), '/pod/c1', true, silentLogger()).innerPathOf(99)).toBe('')
  })
})

describe('holds', () => {
  const holds = async (files: Record<string, string>, isV2 = true) =>
    cgroupAt(await machine(files), '/pod/c1', isV2, silentLogger()).holds(11)

  it.each([
    ['in the cgroup itself', '0::/pod/c1\n', true],
    ['below it', '0::/pod/c1/init.scope\n', true],
    ['in another one with a similar name', '0::/pod/c10\n', false],
    ['of the agent', '0::/\n', false],
    ['in the cgroup, on v1', '5:pids:/pod/c1\n4:memory:/pod/c1\n0::/\n', true],
    ['in another one, on v1', '5:pids:/pod/c2\n0::/\n', false],
  ])('says whether a process is in it: one %s', async (_what, table, expected) => {
    const files = { '/proc/11/cgroup': table, '/proc/11/stat': '11 (a) Z b) S 1 11 11 0 -1 4194560 0' }
    expect(await holds(files)).toBe(expected)
  })

  it('is true for a process that is ending, and one that has ended', async () => {
    expect(await holds({})).toBe(true)
    // An exiting process and a zombie, as cgroup v1 shows them.
    for (const stat of ['R 1 11 11 0 -1 4194564 0', 'Z 1 11 11 0 -1 4227084 0']) {
      const files = { '/proc/11/cgroup': '5:pids:/\n0::/\n', '/proc/11/stat': `11 (sh) ${stat}` }
      expect(await holds(files, false)).toBe(true)
    }
    expect(await holds({ '/proc/11/cgroup': '0::/\n' })).toBe(true)
  })
})

describe('lookAt', () => {
  it('returns the text of the process, and finds one with long paths', async () => {
    const stat = '11 (a) S 1 11 11 0 -1 4194560 0'
    const long = `5:pids:/${'x'.repeat(5000)}\n4:memory:/pod/c1\n`
    const files = { '/proc/11/cgroup': long, '/proc/11/stat': stat }
    const cgroup = (path: string, of: Record<string, string>) =>
      machine(of).then((os) => cgroupAt(os, path, false, silentLogger()).lookAt(11))
    expect(await cgroup('/pod/c1', files)).toEqual({ isMember: true, stat })
    expect(await cgroup('/pod/c2', files)).toEqual({ isMember: false, stat })
    expect(await cgroup('/pod/c1', {})).toEqual({ isMember: true, stat: '' })
  })
})

describe('usesCgroupV2', () => {
  it('checks for cgroup.controllers', async () => {
    expect(await usesCgroupV2(await machine({}))).toBe(false)
    expect(await usesCgroupV2(await machine({ '/sys/fs/cgroup/cgroup.controllers': 'cpu' }))).toBe(true)
  })
})
