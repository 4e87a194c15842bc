import { describe, expect, it } from 'vitest'
import { Hooks } from '../../../src/gen/oci.ts'
import { type EndedContainer, NativeDelete } from '../../../src/handlers/oci-runtime/native-delete.ts'
import { RuntimeFile } from '../../../src/handlers/oci-runtime/runtime-program.ts'
import { kernelError } from '../../../src/os/errors.ts'
import { FakeOs } from '../../support/fakes/fake-os.ts'

type Kind = 'runc' | 'crun'

const PRINTED = {
  runc: 'runc version 1.3.6+ds1\ncommit: 1.3.6+ds1-1\nspec: 1.2.1\n',
  crun: 'crun version 1.28\ncommit: 54f16ffbefcd022bf032af768b5c5ce075c18bfc\nrundir: /run/crun\n',
}

const STATE_OF_RUNC = {
  id: 'c1',
  init_process_pid: 42,
  config: { Hooks: { poststop: null } },
  cgroup_paths: { cpu: '/sys/fs/cgroup/cpu,cpuacct/pod/c1', memory: '/sys/fs/cgroup/memory/pod/c1' },
  intel_rdt_path: '',
}
const STATUS_OF_CRUN = { pid: 42, 'cgroup-path': '/pod/c1', 'systemd-cgroup': false }
const CONFIG_OF_CRUN = { linux: {} }

const FOLDER = '/run/rt/state/c1'
const FILES: Readonly<Record<Kind, Readonly<Record<string, string>>>> = {
  runc: { 'exec.fifo': '', 'state.json': JSON.stringify(STATE_OF_RUNC) },
  crun: {
    'exec.fifo': '',
    'seccomp.bpf': '',
    status: JSON.stringify(STATUS_OF_CRUN),
    'config.json': JSON.stringify(CONFIG_OF_CRUN),
  },
}

/** A machine with a stopped container. `changed` replaces files of its state. */
async function machine(kind: Kind, changed: Readonly<Record<string, string | undefined>> = {}) {
  const os = new FakeOs()
  const binary = `/usr/bin/${kind}`
  await os.files.put(binary, '')
  const prints = { version: PRINTED[kind] }
  os.tools.script(() => ({ stdout: prints.version }))
  for (const [name, text] of Object.entries({ ...FILES[kind], ...changed })) {
    if (text !== undefined) await os.files.put(`${FOLDER}/${name}`, text)
  }
  const native = new NativeDelete(os, { kind, root: '/run/rt' }, new RuntimeFile(os, binary))
  const steps: string[] = []
  const { removeFile, removeDirectory } = os.files
  os.files.removeFile = (path) => {
    steps.push(path)
    return removeFile.call(os.files, path)
  }
  os.files.removeDirectory = (path) => {
    steps.push(path)
    return removeDirectory.call(os.files, path)
  }
  const container: EndedContainer = {
    ...{ id: 'c1', initPid: 42, cgroupPath: '/pod/c1', spec: { Hooks: undefined } },
    clear: async () => void steps.push('cgroups'),
  }
  const remove = (one: Partial<EndedContainer> = {}) => native.delete({ ...container, ...one })
  return { os, binary, prints, steps, remove }
}

describe.each<Kind>(['runc', 'crun'])('NativeDelete of a container of %s', (kind) => {
  const main = kind === 'runc' ? 'state.json' : 'status'

  it('removes the cgroups, the files, and the folder, in this order', async () => {
    const { os, remove, steps } = await machine(kind)
    expect(await remove()).toBe(true)
    const files = Object.keys(FILES[kind]).map((name) => `${FOLDER}/${name}`)
    expect(steps).toEqual(['cgroups', ...files, FOLDER])
    expect(os.files.has(FOLDER)).toBe(false)
    expect(os.files.openFolders).toBe(0)
  })

  it('continues after a death at any step', async () => {
    const count = Object.keys(FILES[kind]).length + 2
    for (let done = 0; done < count; done++) {
      const { os, remove, steps } = await machine(kind)
      const { removeFile, removeDirectory } = os.files
      const died = kernelError('unlink', 'x', 'EIO')
      os.files.removeFile = (path) => (steps.length >= done ? Promise.reject(died) : removeFile(path))
      os.files.removeDirectory = (path) =>
        steps.length >= done ? Promise.reject(died) : removeDirectory(path)
      const clear = async () => {
        if (steps.length >= done) throw died
        steps.push('cgroups')
      }
      expect(await remove({ clear })).toBe(false)
      os.files.removeFile = removeFile
      os.files.removeDirectory = removeDirectory
      expect(await remove()).toBe(true)
      expect(os.files.has(FOLDER)).toBe(false)
      expect(os.files.openFolders).toBe(0)
    }
  })

  it.each([
    ['a file that the runtime does not make', { extra: '' }],
    ['no state', { [main]: undefined }],
    ['a state that is cut', { [main]: FILES[kind][main]?.slice(0, -1) }],
    ['a state of something else', { [main]: '[]' }],
    ['a state that is too long', { [main]: FILES[kind][main]?.padEnd(1024 * 1024 + 1) }],
  ])('leaves it to the runtime with %s', async (_what, changed) => {
    const { remove, steps } = await machine(kind, changed)
    expect(await remove()).toBe(false)
    expect(steps).toEqual([])
  })

  it.each([
    ['another process', { initPid: 43 }],
    ['another cgroup', { cgroupPath: '/pod/c2' }],
    ['another cgroup of the same end', { cgroupPath: '/c1' }],
    ['a hook', { spec: { Hooks: Hooks.fromPartial({ Poststop: [{ Path: '/bin/true' }] }) } }],
  ])('leaves it to the runtime when the agent knows of %s', async (_what, one) => {
    const { remove, steps } = await machine(kind)
    expect(await remove(one)).toBe(false)
    expect(steps).toEqual([])
  })

  it('leaves it to the runtime when a process has joined the cgroup', async () => {
    const { os, remove, steps } = await machine(kind)
    const clear = () => Promise.reject(kernelError('rmdir', 'x', 'EBUSY'))
    expect(await remove({ clear })).toBe(false)
    expect(steps).toEqual([])
    expect(os.files.has(`${FOLDER}/${main}`)).toBe(true)
  })

  it('follows no link', async () => {
    const { os, remove, steps } = await machine(kind, { [main]: undefined })
    await os.files.put('/elsewhere/file', FILES[kind][main] ?? '')
    await os.files.symlink('/elsewhere/file', `${FOLDER}/${main}`)
    expect(await remove()).toBe(false)
    await os.files.rename(FOLDER, '/elsewhere/c1')
    await os.files.symlink('/elsewhere/c1', FOLDER)
    expect(await remove()).toBe(false)
    expect(steps).toEqual([])
  })

  it('asks the runtime for its version once, and again when its file is another one', async () => {
    const { os, binary, prints, remove } = await machine(kind)
    await Promise.all([remove(), remove({ id: 'c2' })])
    expect(os.tools.calls).toHaveLength(1)
    prints.version = 'runc version 1.4.0\n'
    await os.files.removeFile(binary)
    await os.files.put(binary, '')
    await os.files.put(`${FOLDER}/${main}`, FILES[kind][main] ?? '')
    expect([await remove(), await remove()]).toEqual([false, false])
    expect(os.tools.calls).toHaveLength(2)
    await os.files.removeFile(binary)
    expect(await remove()).toBe(false)
    expect(os.tools.calls).toHaveLength(2)
  })
})

describe('NativeDelete', () => {
  it.each<[string, Kind, Readonly<Record<string, string>>]>([
    ['another container', 'runc', { 'state.json': JSON.stringify({ ...STATE_OF_RUNC, id: 'c2' }) }],
    [
      'a group of resctrl',
      'runc',
      { 'state.json': JSON.stringify({ ...STATE_OF_RUNC, intel_rdt_path: '/x' }) },
    ],
    ['no cgroup', 'runc', { 'state.json': JSON.stringify({ ...STATE_OF_RUNC, cgroup_paths: {} }) }],
    [
      'a cgroup elsewhere',
      'runc',
      {
        'state.json': JSON.stringify({ ...STATE_OF_RUNC, cgroup_paths: { '': '/sys/fs/cgroup/a/b/pod/c1' } }),
      },
    ],
    [
      'a poststop hook',
      'runc',
      { 'state.json': JSON.stringify({ ...STATE_OF_RUNC, config: { Hooks: { poststop: [{}] } } }) },
    ],
    [
      'a cgroup of systemd',
      'crun',
      { status: JSON.stringify({ ...STATUS_OF_CRUN, 'systemd-cgroup': true }) },
    ],
    ['a group of resctrl', 'crun', { status: JSON.stringify({ ...STATUS_OF_CRUN, intelrdt: 'x' }) }],
    ['resctrl', 'crun', { 'config.json': JSON.stringify({ linux: { intelRdt: {} } }) }],
    ['a poststop hook', 'crun', { 'config.json': JSON.stringify({ hooks: { poststop: [{}] } }) }],
    ['a configuration that is cut', 'crun', { 'config.json': '{' }],
  ])('leaves a container to the runtime whose state tells of %s (%s)', async (_what, kind, changed) => {
    const { remove, steps } = await machine(kind, changed)
    expect(await remove()).toBe(false)
    expect(steps).toEqual([])
  })

  it('asks again for a version after a failure', async () => {
    const { os, remove } = await machine('runc')
    const failures = [kernelError('run', '/usr/bin/runc', 'ETIMEDOUT')]
    os.tools.script(() => {
      const error = failures.pop()
      return error && Promise.reject(error)
    })
    expect([await remove(), await remove()]).toEqual([false, true])
  })

  it('leaves it to a runtime whose file cannot be examined', async () => {
    const { os, remove } = await machine('runc')
    os.files.stat = async (path) => {
      throw kernelError('stat', path, 'EIO')
    }
    expect(await remove()).toBe(false)
  })

  it.each([
    ['an older version', 'runc', 'runc version 1.1.5+ds1\ncommit: 1.1.5+ds1-1+deb12u1\n'],
    ['another build', 'runc', 'runc version 1.3.6\ncommit: v1.3.6-0-g1234\n'],
    ['a newer version', 'crun', 'crun version 1.29\ncommit: 54f16ff\n'],
    ['no version', 'crun', ''],
  ] as const)('leaves it to the runtime of %s', async (_what, kind, version) => {
    const { remove, prints, steps } = await machine(kind)
    prints.version = version
    expect(await remove()).toBe(false)
    expect(steps).toEqual([])
  })
})
