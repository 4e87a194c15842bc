import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { VMMetadata } from '../../../src/gen/vm.ts'
import { qemuArguments } from '../../../src/host/qemu/qemu-arguments.ts'
import { UsageError } from '../../../src/microvm/command-line/usage-error.mjs'
import { type GuestParts, guestSpec } from '../../../src/microvm/run/guest-spec.ts'
import { metadataParts, readMetadata } from '../../../src/microvm/run/metadata.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

const folder = temporaryFolder()

const V4 = { ip: '10.0.0.2', peerIp: '10.0.0.1' }
const V6 = { ip: 'fd00::2', peerIp: 'fd00::1' }
const ITEM = `name=opt/vm.metropolis.monogon.dev/v1/metadata.pb,file=${folder}/metadata.pb`

const link: GuestParts['link'] = {
  device: (slot, backend) => ({ kind: 'vsock', slot, cid: 3, backend }),
  backend: { kind: 'vhost-vsock' },
  commandLine: [],
}

function optionsFor(networkConfig: { readonly v4?: typeof V4; readonly v6?: typeof V6 }): readonly string[] {
  const metadata = VMMetadata.create({ name: 'vm1', networkConfig })
  const boot = { kernel: '/k', initrd: '/i', root: undefined }
  const machine = { machine: 'q35', memoryMib: 512, cpus: 1, boot, containerRoot: undefined, link } as const
  const spec = guestSpec({ ...machine, ...metadataParts(metadata, folder) })
  return qemuArguments(spec, { acceleration: 'tcg', qmp: { fd: 3 } })
}

describe('metadataParts', () => {
  it('puts the encoded metadata into the firmware', () => {
    expect(optionsFor({ v4: V4 })).toContain(ITEM)
    expect(readFileSync(`${folder}/metadata.pb`).toString('hex')).toBe(
      '0a03766d3112160a140a0831302e302e302e32120831302e302e302e31',
    )
  })

  it('adds a network card whose other end answers as the peer of both families, and names it to the guest', () => {
    const options = optionsFor({ v4: V4, v6: V6 })
    expect(options).toContain(
      'user,id=name-metadata-network,ipv4=on,net=10.0.0.0/29,host=10.0.0.1,dns=10.0.0.3,dhcpstart=10.0.0.2,' +
        'ipv6=on,ipv6-prefix=fd00::,ipv6-prefixlen=120,ipv6-host=fd00::1,ipv6-dns=fd00::3',
    )
    expect(options.join(' ')).toContain('virtio-net-pci,addr=0x6,id=name-metadata-card')
    expect(options[options.indexOf('-append') + 1]).toContain('agent.metadata_interface=52:54:00:00:00:03')
  })

  it('spans ends that are further apart, and leaves out the family that is not in use', () => {
    expect(optionsFor({ v4: { ip: '10.1.0.2', peerIp: '10.1.255.1' } }).join(' ')).toContain(
      'ipv4=on,net=10.1.0.0/16,host=10.1.255.1,dns=10.1.0.1,dhcpstart=10.1.0.2,ipv6=off',
    )
    expect(optionsFor({ v6: V6 }).join(' ')).toContain('user,id=name-metadata-network,ipv4=off,ipv6=on,')
  })

  it('adds no card for a name alone', () => {
    const options = optionsFor({})
    expect(options).toContain(ITEM)
    expect(options.join(' ')).not.toMatch(/virtio-net|metadata_interface/)
  })

  it('refuses ends that no subnet can hold', () => {
    expect(() => optionsFor({ v4: { ip: '10.0.0.2', peerIp: '192.168.0.1' } })).toThrow(
      "--metadata: 10.0.0.2 and 192.168.0.1 differ in their first 8 bits, which QEMU's user network cannot span",
    )
  })
})

const file = join(folder, 'vm.yaml')

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

  it('treats missing fields as unused', () => {
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
      'network_config.v6.ip fd00::2/64: a point-to-point link needs /128',
    ],
  ])('refuses %j in one sentence', (text, sentence) => {
    expect(() => read(text)).toThrow(UsageError)
    expect(() => read(text)).toThrow(sentence)
    expect(() => read(text)).toThrow(`--metadata ${file}: `)
    expect(() => read(text)).not.toThrow('\n')
  })

  it('names a file that does not exist', () => {
    expect(() => readMetadata('/no/such.yaml')).toThrow('--metadata /no/such.yaml: ENOENT')
  })
})
