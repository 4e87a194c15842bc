import { execFileSync } from 'node:child_process'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { buildAddon } from '../../scripts/build-native.ts'

const OS = join(import.meta.dirname, '../../src/os')

describe('the addresses of interfaces', () => {
  it('are set in a network namespace of its own', async () => {
    const script = `
      import { dirname } from 'node:path'
      import { networkInterfaces } from 'node:os'
      import { loadNative } from '${OS}/native.ts'
      import { linuxNetwork } from '${OS}/system.ts'
      const network = linuxNetwork(loadNative(dirname('${await buildAddon()}')))
      network.setInterfaceAddress('lo', '10.1.2.3', '255.255.0.0')
      network.setInterfaceUp('lo')
      console.log(JSON.stringify(networkInterfaces().lo.map(({ cidr }) => cidr)))
      try {
        network.setInterfaceAddress('lo', 'ten', '255.0.0.0')
      } catch (error) {
        console.log(error.message)
      }
    `
    const node = [process.execPath, '--input-type=module', '--eval', script]
    const [addresses = '', failure] = execFileSync('unshare', ['--net', ...node], { encoding: 'utf8' }).split(
      '\n',
    )
    expect(JSON.parse(addresses)).toContain('10.1.2.3/16')
    expect(failure).toBe('set the address ten of lo: EINVAL')
  })
})
