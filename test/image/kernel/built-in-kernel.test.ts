import { readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { checkConfiguration, kernelConfiguration } from '../../../src/image/kernel/built-in-kernel.ts'

const BASE = 'CONFIG_SMP=y\nCONFIG_NF_NAT=m\nCONFIG_NF_LOG_ARP=m\nCONFIG_DRM=m\nCONFIG_XEN=y\n'

describe('kernelConfiguration', () => {
  it('leaves out the modules of the base, and ends in the fragment', () => {
    expect(kernelConfiguration(BASE, '# comment\nCONFIG_ERO=y\n\n# CONFIG_XEN is not set\n')).toBe(
      'CONFIG_SMP=y\nCONFIG_XEN=y\n\nCONFIG_ERO=y\n# CONFIG_XEN is not set\n',
    )
  })

  it('builds in every module whose name fits', () => {
    const lines = kernelConfiguration(BASE, 'CONFIG_NF_*=y').split('\n')
    expect(lines).toEqual(expect.arrayContaining(['CONFIG_NF_NAT=y', 'CONFIG_NF_LOG_ARP=y']))
    expect(lines).not.toContain('CONFIG_DRM=y')
  })

  it('refuses a name that no module has', () => {
    expect(() => kernelConfiguration(BASE, 'CONFIG_NFT_*=y')).toThrow('CONFIG_NFT_*: no module of Debian')
  })
})

describe('checkConfiguration', () => {
  it('accepts what has every setting of the fragment', () => {
    const fragment = 'CONFIG_SMP=y\nCONFIG_NF_*=y\n# CONFIG_XEN is not set\n# CONFIG_KEXEC is not set\n'
    expect(() => checkConfiguration('CONFIG_SMP=y\n# CONFIG_XEN is not set\n', fragment)).not.toThrow()
  })

  it.each([
    ['CONFIG_EROFS_FS=y', '# CONFIG_EROFS_FS is not set\n'],
    ['CONFIG_EROFS_FS=y', 'CONFIG_EROFS_FS=m\n'],
    ['# CONFIG_XEN is not set', 'CONFIG_XEN=y\n'],
    ['CONFIG_PLANET=y', ''],
  ])('refuses that %s was not taken', (setting, configuration) => {
    expect(() => checkConfiguration(configuration, setting)).toThrow(
      `rootfs/kernel-config: not taken by the kernel: ${setting}`,
    )
  })
})

describe('rootfs/kernel-config', () => {
  it('sets each option once', () => {
    const text = readFileSync(new URL('../../../rootfs/kernel-config', import.meta.url), 'utf8')
    const names = text.split('\n').flatMap((line) => /^(?:# )?(CONFIG_[\w*]+)(?:=| is)/.exec(line)?.[1] ?? [])
    expect(names.length).toBeGreaterThan(50)
    expect(names).toEqual([...new Set(names)])
  })
})
