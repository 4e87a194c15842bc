import { writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, describe, expect, it } from 'vitest'
import { makeTemporaryFolder, removeTemporaryFolder } from '../../../src/build/temporary-folder.ts'
import { UsageError } from '../../../src/microvm/command-line/parse.mjs'
import { readMetadata } from '../../../src/microvm/run/read-metadata.ts'

const folder = makeTemporaryFolder(tmpdir())
const file = join(folder, 'vm.yaml')
afterAll(() => removeTemporaryFolder(folder))

function read(text: string) {
  writeFileSync(file, text)
  return readMetadata(file)
}

const VM1 = {
  name: 'vm1',
  networkConfig: {
    v4: { ip: '10.0.0.2', peerIp: '10.0.0.1' },
    v6: { ip: 'fd00::2', peerIp: 'fd00::1' },
  },
}

describe('readMetadata', () => {
  it('reads YAML', () => {
    const text = `
# the guest of the documentation
name: vm1
network_config:
  v4: {ip: 10.0.0.2, peer_ip: 10.0.0.1}
  v6:
    ip: fd00::2
    peer_ip: fd00::1
`
    expect(read(text)).toEqual(VM1)
  })

  it('reads JSON', () => {
    const { v4, v6 } = VM1.networkConfig
    const wire = ({ ip, peerIp }: typeof v4) => ({ ip, peer_ip: peerIp })
    expect(read(JSON.stringify({ name: 'vm1', network_config: { v4: wire(v4), v6: wire(v6) } }))).toEqual(VM1)
  })

  it('takes what is left out as not in use', () => {
    expect(read('name: vm1')).toEqual({ name: 'vm1', networkConfig: { v4: undefined, v6: undefined } })
    expect(read('network_config: {v6: }')).toEqual({
      name: '',
      networkConfig: { v4: undefined, v6: undefined },
    })
    expect(read('')).toMatchObject({ name: '' })
  })

  it.each([
    ['name: [', 'at line 1, column 8'],
    ['name: a\nname: b', 'Map keys must be unique at line 2, column 1'],
    ['- name: vm1', 'it has name and network_config, and is no list'],
    ['hostname: vm1', 'it has name and network_config, and no hostname'],
    ['name: 7', 'name is a text, and no number: put it in quotes'],
    ['network_config: 10.0.0.2', 'network_config has v4 and v6, and is no text'],
    ['network_config: {ipv4: {}}', 'network_config has v4 and v6, and no ipv4'],
    [
      'network_config: {v4: {ip: 10.0.0.2, gateway: x}}',
      'network_config.v4 has ip and peer_ip, and no gateway',
    ],
    ['network_config: {v4: {ip: 1.5}}', 'network_config.v4.ip is a text, and no number'],
    ['network_config: {v4: {ip: 10.0.0.2}}', 'network_config.v4.peer_ip is missing'],
    [
      'network_config: {v6: {ip: fd00::2/64, peer_ip: fd00::1}}',
      'network_config.v6.ip fd00::2/64: only /128 goes with a point-to-point link',
    ],
  ])('refuses %j in one sentence', (text, sentence) => {
    expect(() => read(text)).toThrow(UsageError)
    expect(() => read(text)).toThrow(sentence)
    expect(() => read(text)).toThrow(`--metadata ${file}: `)
    expect(() => read(text)).not.toThrow('\n')
  })

  it('names a file that is not there', () => {
    expect(() => readMetadata('/no/such.yaml')).toThrow('--metadata /no/such.yaml: ENOENT')
  })
})
