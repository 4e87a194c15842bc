import { parse } from 'smol-toml'
import { describe, expect, it } from 'vitest'
import { kataConfiguration } from '../../src/image/kata-configuration.ts'

describe('a configuration snippet for Kata', () => {
  it('boots the kernel with the initrd alone: image is emptied, because Kata refuses both', () => {
    expect(parse(kataConfiguration('go', { installPath: '/opt/guest' }))).toEqual({
      hypervisor: {
        qemu: { kernel: '/opt/guest/vmlinuz', initrd: '/opt/guest/initrd.img', image: '' },
      },
    })
  })

  it('leaves runtime-rs room for memory, and time to boot', () => {
    expect(parse(kataConfiguration('rs', { installPath: '/opt/guest' }))).toEqual({
      hypervisor: {
        qemu: {
          kernel: '/opt/guest/vmlinuz',
          initrd: '/opt/guest/initrd.img',
          image: '',
          memory_slots: 10,
          default_maxmemory: 0,
        },
      },
      agent: { kata: { reconnect_timeout_ms: 45_000 } },
    })
  })

  it.each([
    ['go', { disable_image_nvdimm: true }],
    ['rs', { vm_rootfs_driver: 'virtio-blk-pci' }],
  ] as const)('shows in comments what a root disk needs: %s', (runtime, disk) => {
    const [, form = ''] =
      /^# Or with a root disk.*\n((?:# .*\n)+)/m.exec(
        kataConfiguration(runtime, { installPath: '/opt/guest' }),
      ) ?? []
    expect(parse(form.replaceAll(/^# /gm, ''))).toEqual({
      kernel: '/opt/guest/vmlinuz-built-in',
      initrd: '',
      image: '/opt/guest/root.img',
      rootfs_type: 'erofs',
      ...disk,
    })
  })

  it.each([
    ['go', {}],
    ['rs', { reconnect_timeout_ms: 45_000 }],
  ] as const)('turns the debug console on for a guest with a shell, and only then: %s', (runtime, others) => {
    const options = { installPath: '/opt/guest', debugShell: true }
    const { agent, ...rest } = parse(kataConfiguration(runtime, options))
    expect(agent).toEqual({ kata: { ...others, debug_console_enabled: true } })
    expect(parse(kataConfiguration(runtime, { installPath: '/opt/guest' }))).toMatchObject(rest)
  })

  it.each(['/opt/a "b"', '/opt/back\\slash', '/opt/grüße', '/opt/tab\there'])(
    'is TOML for any folder: %j',
    (folder) => {
      expect(parse(kataConfiguration('go', { installPath: folder }))).toMatchObject({
        hypervisor: { qemu: { kernel: `${folder}/vmlinuz` } },
      })
    },
  )
})
