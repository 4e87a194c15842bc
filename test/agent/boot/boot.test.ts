import { describe, expect, it } from 'vitest'
import { boot, bootBehindGate } from '../../../src/agent/boot/boot.ts'
import { BootGate } from '../../../src/agent/boot/gate.ts'
import { bareGuest } from '../../support/agent/bare-guest.ts'

const MOUNTED_BY_BOOT = ['/dev/shm', '/dev/pts', '/run', '/tmp', '/sys/fs/cgroup']

describe('the lock of the program in memory', () => {
  it('comes a second after the gate has opened', async () => {
    const { os, context } = await bareGuest()
    const gate = new BootGate()
    const given = { channel: { restarts: 0 }, init: true }
    await bootBehindGate(context, given, gate, async () => {})
    expect([gate.isOpen, os.system.locksMappedFiles]).toEqual([true, false])
    os.clock.advance(999)
    expect(os.system.locksMappedFiles).toBe(false)
    os.clock.advance(1)
    expect(os.system.locksMappedFiles).toBe(true)
  })
})

describe('boot', () => {
  it('prepares a bare guest for containers', async () => {
    const { os, context, environment } = await bareGuest()
    await boot(context, true)
    expect(os.mounts.requests.map(({ target }) => target)).toEqual(MOUNTED_BY_BOOT)
    expect(await os.files.readLink('/dev/ptmx')).toBe('/dev/pts/ptmx')
    expect(await os.files.readLink('/dev/stdin')).toBe('/proc/self/fd/0')
    expect(os.system).toMatchObject({ hostname: 'guest', openFileLimit: 2 ** 30, umask: 0o022 })
    expect(await os.files.readText('/proc/self/oom_score_adj')).toBe('-997')
    expect(os.network.link('lo').up).toBe(true)
    expect(environment.PATH).toBe('/bin:/sbin:/usr/bin:/usr/sbin')
    expect(os.tools.calls.map(({ argv }) => argv.join(' '))).toEqual([
      '/sbin/modprobe -a virtio_pci virtio_blk virtio_net qemu_fw_cfg',
    ])
  })

  it('writes a log line with its time for each step', async () => {
    const { context, lines } = await bareGuest()
    await boot(context, true)
    const steps = lines.filter(({ message }) => message === 'boot step').map(({ fields }) => fields)
    expect(steps.map(({ step, outcome }) => `${step}: ${outcome}`)).toEqual([
      'limits: done',
      'own process: done',
      'mounts: done',
      'device links: done',
      'cgroups: done',
      'loopback: done',
      'device drivers: done',
      'extensions: already',
      'identity: done',
    ])
    for (const { ms } of steps) expect(ms).toMatch(/^\d+\.\d$/)
  })

  it('only checks after a restart of the agent, but prepares the new process', async () => {
    const { os, context, lines } = await bareGuest()
    await boot(context, true)
    await asTheKernelShowsIt(os.files.write.bind(os.files), os.files.makeDirectories.bind(os.files))
    os.mounts.requests.length = 0
    os.system.openFileLimit = undefined
    lines.length = 0
    await boot(context, true)
    expect(os.mounts.requests).toEqual([])
    expect(os.tools.calls).toHaveLength(1)
    expect(os.system.openFileLimit).toBe(2 ** 30)
    const steps = lines.filter(({ message }) => message === 'boot step').map(({ fields }) => fields)
    expect(steps.map(({ step, outcome }) => `${step}: ${outcome}`)).toEqual([
      'limits: already',
      'own process: done',
      'mounts: already',
      'device links: already',
      'cgroups: already',
      'loopback: already',
      'device drivers: already',
      'extensions: already',
      'identity: already',
    ])
  })

  it('keeps a higher maximum of open files, or one that the kernel refuses to raise', async () => {
    const higher = await bareGuest()
    await higher.os.files.put('/proc/sys/fs/nr_open', '2147483584\n')
    await boot(higher.context, true)
    expect(higher.os.system.openFileLimit).toBe(2_147_483_584)
    const { os, context, lines } = await bareGuest()
    const write = os.files.write.bind(os.files)
    os.files.write = async (path, data, options) => {
      if (path.endsWith('nr_open')) throw new Error('EINVAL')
      await write(path, data, options)
    }
    await boot(context, true)
    expect(os.system.openFileLimit).toBe(1_048_576)
    expect(lines).toContainEqual(
      expect.objectContaining({
        message: 'limit of the guest not raised',
        fields: { limit: 'fs.nr_open', error: 'EINVAL' },
      }),
    )
  })

  it('names the step that failed and stops there', async () => {
    const { os, context } = await bareGuest()
    os.mounts.failWith = (_, target) => (target === '/run' ? 'EPERM' : undefined)
    await expect(boot(context, true)).rejects.toMatchObject({
      code: 'INTERNAL',
      message: 'boot step mounts: mount /run: EPERM',
    })
    expect(os.system.hostname).toBeUndefined()
  })

  it('changes nothing on a system with an init of its own', async () => {
    const { os, context } = await bareGuest()
    await boot(context, false)
    expect(os.mounts.requests).toEqual([])
    expect(os.tools.calls).toEqual([])
    expect(os.system.openFileLimit).toBeUndefined()
  })
})

/** Writes the contents of the kernel's files after the first boot. */
async function asTheKernelShowsIt(
  write: (path: string, data: string) => Promise<void>,
  makeDirectories: (path: string) => Promise<void>,
): Promise<void> {
  await write('/proc/sys/kernel/hostname', 'guest\n')
  await write('/sys/fs/cgroup/cgroup.subtree_control', 'cpuset cpu memory pids\n')
  for (const module of ['virtio_pci', 'virtio_blk', 'virtio_net', 'qemu_fw_cfg'])
    await makeDirectories(`/sys/module/${module}`)
}
