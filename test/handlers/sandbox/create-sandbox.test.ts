import { describe, expect, it } from 'vitest'
import { neverAborted } from '../../../src/base/abort.ts'
import {
  containerRequest,
  machine,
  machineWithSandbox,
  remains,
  sandboxRequest,
} from '../../support/handlers/machine.ts'

describe('CreateSandbox', () => {
  it('pins the namespaces with the host name set', async () => {
    const { os } = await machineWithSandbox()
    expect(os.mounts.hostnames).toEqual(['pod'])
    const pins = os.mounts.entries.filter(({ type }) => type === 'nsfs')
    expect(pins.map(({ mountPoint }) => mountPoint)).toEqual(['/run/sandbox-ns/ipc', '/run/sandbox-ns/uts'])
  })

  it('sets no host name when the request has none', async () => {
    const { os, handlers } = await machine()
    await handlers.createSandbox(sandboxRequest({ hostname: '' }), neverAborted)
    expect(os.mounts.hostnames).toEqual([''])
  })

  it('leaves neither namespace when the second cannot be pinned', async () => {
    const { os, handlers } = await machine()
    os.mounts.failWith = (_call, target) => (target.endsWith('/uts') ? 'EPERM' : undefined)
    await expect(handlers.createSandbox(sandboxRequest(), neverAborted)).rejects.toThrow('EPERM')
    expect(os.mounts.entries.map(({ mountPoint }) => mountPoint)).toEqual(['/'])
  })

  it('takes a host name of 64 bytes, of whatever letters', async () => {
    const { os, handlers } = await machine()
    const hostname = `-a_b c/${'ü'.repeat(28)}.`
    await handlers.createSandbox(sandboxRequest({ hostname }), neverAborted)
    expect(os.mounts.hostnames).toEqual([hostname])
  })

  it.each([
    ['x'.repeat(65), 'hostname: 65 bytes long, want at most 64'],
    ['ü'.repeat(33), 'hostname: 66 bytes long, want at most 64'],
    ['a\0b', 'hostname: contains a NUL byte'],
  ])('refuses the host name %j, and changes nothing', async (hostname, message) => {
    const { os, handlers } = await machine()
    const creating = handlers.createSandbox(sandboxRequest({ hostname }), neverAborted)
    await expect(creating).rejects.toMatchObject({ code: 'INVALID_ARGUMENT', message })
    expect([os.mounts.hostnames, os.tools.calls]).toEqual([[], []])
    await handlers.createSandbox(sandboxRequest(), neverAborted)
  })

  it.each(['succeeds', 'fails'])('leaves earlier containers intact when it %s', async (how) => {
    const { os, handlers } = await machine()
    await handlers.createContainer(containerRequest('c1'), neverAborted)
    const kernelModules = how === 'fails' ? [{ name: '' }] : []
    await handlers.createSandbox(sandboxRequest({ kernelModules }), neverAborted).catch(() => {})
    expect(await os.files.list('/run/kata-containers/c1')).toEqual(['config.json', 'rootfs'])
    expect(os.mounts.isMountPoint('/run/kata-containers/c1/rootfs')).toBe(true)
    await handlers.startContainer({ containerId: 'c1' }, neverAborted)
    await handlers.destroySandbox({}, neverAborted)
    expect(os.mounts.entries.map(({ mountPoint }) => mountPoint)).toEqual(['/'])
  })

  it('loads the kernel modules with their parameters, in order', async () => {
    const { os, handlers } = await machine()
    const kernelModules = [{ name: 'loop', parameters: ['max_loop=4'] }, { name: 'fuse' }]
    await handlers.createSandbox(sandboxRequest({ kernelModules }), neverAborted)
    const modprobes = os.tools.calls
      .map(({ argv }) => argv)
      .filter(([program]) => program === '/sbin/modprobe')
    expect(modprobes.map((argv) => argv.slice(1))).toEqual([
      ['-v', '--', 'loop', 'max_loop=4'],
      ['-v', '--', 'fuse'],
    ])
  })

  it('names the module that cannot be loaded', async () => {
    const { os, handlers } = await machine()
    os.tools.script(([program]) =>
      program === '/sbin/modprobe' ? { exitCode: 1, stderr: 'not there\n' } : undefined,
    )
    await expect(
      handlers.createSandbox(sandboxRequest({ kernelModules: [{ name: 'nope' }] }), neverAborted),
    ).rejects.toMatchObject({
      code: 'INTERNAL',
      message: 'load_kernel_module return code: 1 for nope: not there',
    })
  })

  it.each(['', '-r'])('refuses the module name %j', async (name) => {
    const { handlers } = await machine()
    const request = sandboxRequest({ kernelModules: [{ name }] })
    await expect(handlers.createSandbox(request, neverAborted)).rejects.toThrow(`module name '${name}'`)
  })

  it('bind-mounts the dns lines over resolv.conf', async () => {
    const { os, handlers } = await machine()
    await handlers.createSandbox(sandboxRequest({ dns: ['nameserver 1.1.1.1', 'search x'] }), neverAborted)
    const file = '/run/kata-containers/sandbox/resolv.conf'
    expect(await os.files.readText(file)).toBe('nameserver 1.1.1.1\nsearch x')
    expect(os.mounts.requests.at(-1)).toMatchObject({
      source: file,
      target: '/etc/resolv.conf',
      flags: ['bind'],
    })
  })

  it.each(['/run/resolver/resolv.conf', '../run/resolver/resolv.conf'])(
    'bind-mounts them over the target of the link %s, and unmounts them with the sandbox',
    async (link) => {
      const { os, handlers } = await machine()
      await os.files.put('/run/resolver/resolv.conf', '')
      await os.files.removeFile('/etc/resolv.conf')
      await os.files.symlink(link, '/etc/resolv.conf')
      await handlers.createSandbox(sandboxRequest({ dns: ['nameserver 1.1.1.1'] }), neverAborted)
      const targets = os.mounts.requests.map(({ target }) => target)
      expect(targets).toContain(link.startsWith('/') ? link : `/etc/${link}`)
      await handlers.destroySandbox({}, neverAborted)
      expect(os.mounts.entries.map(({ mountPoint }) => mountPoint)).toEqual(['/'])
    },
  )

  it('skips dns in a guest without resolv.conf', async () => {
    const { os, handlers } = await machine()
    await os.files.removeFile('/etc/resolv.conf')
    await handlers.createSandbox(sandboxRequest({ dns: ['nameserver 1.1.1.1'] }), neverAborted)
    expect(os.mounts.isMountPoint('/etc/resolv.conf')).toBe(false)
  })

  it('attaches its storages', async () => {
    const { storages, handlers } = await machine()
    await handlers.createSandbox(sandboxRequest({ storages: [{ mountPoint: '/run/x' }] }), neverAborted)
    expect(storages).toEqual(['/run/x'])
  })

  it('fails while a sandbox exists, and changes nothing', async () => {
    const made = await machineWithSandbox()
    await made.os.files.put('/run/kata-containers/c1/config.json', '{}')
    const before = await remains(made)
    await expect(made.handlers.createSandbox(sandboxRequest(), neverAborted)).rejects.toMatchObject({
      code: 'INTERNAL',
      message: "sandbox 'pod': already exists (active)",
    })
    expect(await remains(made)).toEqual(before)
  })

  it('fails while another sandbox is being created', async () => {
    const { handlers } = await machine()
    const first = handlers.createSandbox(sandboxRequest(), neverAborted)
    await expect(handlers.createSandbox(sandboxRequest(), neverAborted)).rejects.toThrow('already exists')
    await first
  })

  it('empties the shared folder', async () => {
    const { os, handlers } = await machine()
    await os.files.put('/run/kata-containers/old/config.json', '{}')
    await handlers.createSandbox(sandboxRequest(), neverAborted)
    expect(await os.files.list('/run/kata-containers')).toEqual([])
  })

  it('removes the shared folder of a rootless host, and no other files of a user', async () => {
    const { os, handlers } = await machine()
    const shared = '/run/user/1000/run/kata-containers'
    await os.files.put(`${shared}/local/secret`, 'of another sandbox')
    await os.files.put('/run/user/1000/bus', '')
    await os.files.put('/run/user/name/run/kata-containers/file', '')
    await os.mounts.mount({
      source: '/dev/vdb',
      target: `${shared}/local`,
      type: 'ext4',
      flags: [],
      data: '',
    })
    await handlers.createSandbox(sandboxRequest(), neverAborted)
    expect(os.mounts.isMountPoint(`${shared}/local`)).toBe(false)
    expect(await os.files.lstat(shared)).toBeUndefined()
    expect(await os.files.list('/run/user/1000')).toEqual(['bus', 'run'])
    expect(await os.files.list('/run/user/name/run/kata-containers')).toEqual(['file'])
  })
})
