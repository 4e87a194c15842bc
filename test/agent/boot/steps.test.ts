import { describe, expect, it } from 'vitest'
import { prepareTransport } from '../../../src/agent/boot/boot.ts'
import { setHostname } from '../../../src/agent/boot/identity.ts'
import { loadDeviceDrivers } from '../../../src/agent/boot/modules.ts'
import { linkDevices } from '../../../src/agent/boot/mounts.ts'
import { prepareOwnProcess } from '../../../src/agent/boot/own-process.ts'
import { bareGuest } from '../../support/agent/bare-guest.ts'

describe('prepareOwnProcess', () => {
  it.each(['SIGINT', 'SIGQUIT', 'SIGHUP'] as const)(
    'survives %s, which the console sends',
    async (signal) => {
      const { os, context } = await bareGuest()
      await prepareOwnProcess(context)
      os.system.receive(signal)
      expect(os.system.endedBy).toBeUndefined()
    },
  )

  it('raises the priority of the process and of its session', async () => {
    const { os, context } = await bareGuest()
    await prepareOwnProcess(context)
    expect(os.system.nice).toBe(-10)
    expect(await os.files.readText('/proc/self/autogroup')).toBe('-10')
  })

  it('continues when the kernel refuses the priority of the session', async () => {
    const { os, context } = await bareGuest()
    await os.files.makeDirectories('/proc/self/autogroup')
    expect(await prepareOwnProcess(context)).toBe('done')
  })
})

describe('linkDevices', () => {
  it('replaces a link that points elsewhere', async () => {
    const { os, context } = await bareGuest()
    await os.files.symlink('/elsewhere', '/dev/fd')
    await linkDevices(context)
    expect(await os.files.readLink('/dev/fd')).toBe('/proc/self/fd')
  })
})

describe('setHostname', () => {
  it.each([
    ['guest\n', 'guest'],
    ['  guest.example  # mine\n', 'guest.example'],
    ['\n', 'localhost'],
  ])('takes the first word of %j', async (content, hostname) => {
    const { os, context } = await bareGuest()
    await os.files.write('/etc/hostname', content)
    await setHostname(context, undefined)
    expect(os.system.hostname).toBe(hostname)
  })

  it('sets localhost without /etc/hostname', async () => {
    const { os, context } = await bareGuest()
    await os.files.removeFile('/etc/hostname')
    await setHostname(context, undefined)
    expect(os.system.hostname).toBe('localhost')
  })

  it('prefers the name that the host gives', async () => {
    const { os, context } = await bareGuest()
    await setHostname(context, 'vm1')
    expect(os.system.hostname).toBe('vm1')
  })

  it('only logs a failure', async () => {
    const { os, context, lines } = await bareGuest()
    os.system.setHostname = () => {
      throw new Error('sethostname: EPERM')
    }
    await expect(setHostname(context, undefined)).resolves.toBe('already')
    expect(lines).toEqual([
      { level: 'warn', message: 'hostname not set', fields: { error: 'sethostname: EPERM' } },
    ])
  })
})

describe('loadDeviceDrivers', () => {
  it('loads only modules that are not loaded yet', async () => {
    const { os, context } = await bareGuest()
    await os.files.makeDirectories('/sys/module/virtio_pci')
    await os.files.makeDirectories('/sys/module/virtio_blk')
    await loadDeviceDrivers(context)
    expect(os.tools.calls.map(({ argv }) => argv)).toEqual([
      ['/sbin/modprobe', '-a', 'virtio_net', 'qemu_fw_cfg'],
    ])
  })

  it.each([
    ['metadata is off', { metadata: 'off' }, []],
    ['it is built into the kernel', {}, ['/sys/firmware/qemu_fw_cfg']],
  ] as const)('does not load the driver of the firmware when %s', async (_, config, folders) => {
    const { os, context } = await bareGuest(config)
    for (const folder of folders) await os.files.makeDirectories(folder)
    await loadDeviceDrivers(context)
    expect(os.tools.calls[0]?.argv).not.toContain('qemu_fw_cfg')
  })

  it('loads the driver of virtio-mmio when the machine has such devices', async () => {
    const { os, context } = await bareGuest()
    await os.files.removeTree('/sys/bus/pci')
    await os.files.makeDirectories('/sys/bus/platform/devices/LNRO0005:00')
    await loadDeviceDrivers(context)
    expect(os.tools.calls[0]?.argv).toContain('virtio_mmio')
    expect(os.tools.calls[0]?.argv).not.toContain('virtio_pci')
  })

  it.each([
    ['modprobe fails', () => ({ exitCode: 1, stderr: 'modprobe: FATAL: Module virtio_net not found\n' })],
    ['modprobe is missing', () => Promise.reject(new Error('start /sbin/modprobe: ENOENT'))],
  ])('only logs that %s', async (_, answer) => {
    const { os, context, lines } = await bareGuest()
    os.tools.script(answer)
    await loadDeviceDrivers(context)
    expect(lines.map(({ message }) => message)).toEqual(['kernel modules not loaded'])
  })
})

describe('prepareTransport', () => {
  const loaded = async (...given: Parameters<typeof bareGuest>) => {
    const { os, context } = await bareGuest(...given)
    await prepareTransport(context, true)
    return os.tools.calls.map(({ argv }) => argv.slice(2).join(' '))
  }

  it('loads the modules of vsock', async () => {
    expect(await loaded()).toEqual(['virtio_pci vsock vmw_vsock_virtio_transport'])
  })

  it('loads the loopback transport only with the test setting', async () => {
    expect(await loaded({ vsockAllowLoopback: true })).toEqual([
      'virtio_pci vsock vmw_vsock_virtio_transport vsock_loopback',
    ])
  })

  it('gives the guest the address of ip= for TCP', async () => {
    const { os, context } = await bareGuest({
      serverAddress: 'tcp://0.0.0.0:1024',
      kernelIp: '10.0.2.15::10.0.2.2:255.255.255.0::eth0:off',
    })
    os.network.addLink({ name: 'eth0' })
    await prepareTransport(context, true)
    expect(os.tools.calls.map(({ argv }) => argv.join(' '))).toEqual([
      '/sbin/modprobe -a virtio_pci virtio_net',
    ])
    expect(os.network.addresses()).toMatchObject([
      { address: '10.0.2.15', prefixLength: 24, broadcast: '10.0.2.255' },
    ])
    expect(os.network.link('eth0').up).toBe(true)
  })

  it('does not change the network without ip=', async () => {
    const { os, context } = await bareGuest({ serverAddress: 'tcp://0.0.0.0:1024' })
    await prepareTransport(context, true)
    expect(os.network.changes).toEqual([])
  })

  it.each(['dhcp', '10.0.2.15:::255.255.255.0::', '::::::eth0'])('refuses ip=%s', async (kernelIp) => {
    const preparing = loaded({ serverAddress: 'tcp://0.0.0.0:1024', kernelIp })
    await expect(preparing).rejects.toThrow(`ip=${kernelIp}: address, mask or device is missing`)
  })

  it('names a device of ip= that does not exist', async () => {
    const preparing = loaded({
      serverAddress: 'tcp://0.0.0.0:1024',
      kernelIp: '10.0.2.15:::255.255.255.0::eth9',
    })
    await expect(preparing).rejects.toThrow('no device eth9')
  })

  it('loads nothing for a unix socket', async () => {
    expect(await loaded({ serverAddress: 'unix:///run/agent.sock' })).toEqual([])
  })

  it('loads no modules on a system with an init of its own', async () => {
    const { os, context } = await bareGuest()
    await prepareTransport(context, false)
    expect(os.tools.calls).toEqual([])
  })
})
