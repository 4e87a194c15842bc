import { describe, expect, it } from 'vitest'
import { domainXml } from '../../../src/host/machine/libvirt/domain-xml.ts'
import { expanded } from '../../support/host-wing/expansion.ts'
import { xmlFields } from '../../support/host-wing/xml-fields.ts'

const fieldsOf = (features: Readonly<Record<string, unknown>>) => xmlFields(domainXml(expanded(features)))

describe("a machine as libvirt's domain", () => {
  it('names volumes of the catalogue, and disks by their places', () => {
    const storage = [
      { source: 'a', limits: { iopsTotal: 7 }, errorPolicy: 'enospace', snapshot: true },
      { source: 'b', interface: 'virtio-scsi', unit: 27 },
    ]
    const xml = domainXml(expanded({ iothreads: 1, storage }))
    expect(xml).toContain('<source pool="catalogue" volume="a"/>')
    expect(xml).toContain('<driver name="qemu" type="raw" error_policy="enospace" iothread="1"/>')
    expect(xml).toContain('<total_iops_sec>7</total_iops_sec>')
    expect([...xml.matchAll(/dev="(\w+)"/g)].map(([, name]) => name)).toEqual(['vda', 'sdab'])
  })

  it('has disks of SATA after those of SCSI, whose names they share', () => {
    const storage = [{ type: 'cdrom' }, { source: 'b', interface: 'virtio-scsi' }]
    const names = domainXml(expanded({ storage })).matchAll(/bus="(\w+)" dev="(\w+)"/g)
    expect([...names].map(([, bus, name]) => [bus, name])).toEqual([
      ['sata', 'sdb'],
      ['scsi', 'sda'],
    ])
  })

  it('has firmware, CPU and memory as libvirt calls them', () => {
    const fields = fieldsOf({
      firmware: { type: 'uefi', secureBoot: true },
      cpu: { model: 'host', features: { vmx: false }, count: 4, present: 2 },
      memory: { size: 1024, hugePages: '1G', slots: 0 },
      balloon: false,
    })
    expect(Object.fromEntries(fields)).toMatchObject({
      ...{ 'os@firmware': 'efi', 'os/loader@secure': 'yes', 'features/smm@state': 'on', 'vcpu@current': '2' },
      ...{
        'cpu@mode': 'host-passthrough',
        'cpu/feature@policy': 'disable',
        'devices/memballoon@model': 'none',
      },
      'memoryBacking/hugepages/page@unit': 'GiB',
    })
    expect(fields.has('maxMemory')).toBe(false)
  })

  it("tells a filter the guest's addresses", () => {
    const nic = { source: 'a', filter: 'clean-traffic', addresses: ['10.0.0.2', 'fd00::2'] }
    const xml = domainXml(expanded({ network: [nic] }))
    expect(xml.match(/<filterref[\s\S]*<\/filterref>/)?.[0].replace(/>\s+</g, '><')).toBe(
      '<filterref filter="clean-traffic"><parameter name="IP" value="10.0.0.2"/><parameter name="IPV6" value="fd00::2"/></filterref>',
    )
  })

  it('has one cell of everything where memory may be added', () => {
    expect(fieldsOf({ memory: 512, cpu: 4 }).get('cpu/numa/cell@cpus')).toBe('0-3')
    expect(fieldsOf({ memory: { size: 512, slots: 0 } }).has('cpu/numa/cell@cpus')).toBe(false)
  })

  it('has texts of the document as texts', () => {
    expect(domainXml(expanded({ smbios: { product: '<a>&"b"' } }))).toContain('&#60;a&#62;&#38;&#34;b&#34;')
  })

  it.each([
    [{ machine: 'microvm' }, 'board.machine: libvirt knows no addresses of machine microvm'],
    [{ numa: 'match-host' }, 'numa.matchHost: libvirt wants cells'],
    [{ firmware: { kernel: 'debian-13' } }, 'firmware.kernel: libvirt takes a path'],
    [
      { storage: [{ source: 'a', interface: 'nvme' }] },
      'devices.disk0: libvirt 9.0 has no disks of interface nvme',
    ],
    [{ share: [{ source: 'a', tag: 'a' }] }, 'devices.share0: libvirt has no words for a share here'],
    [{ metadata: { name: 'a' } }, 'devices.metadata0: libvirt has no words for a firmware-item here'],
    [
      {
        network: [{ source: 'a', filter: ['no-ip-spoofing', 'no-mac-spoofing'], addresses: ['10.0.0.2'] }],
      },
      'backends.nic0-backend.options.filters: libvirt takes one',
    ],
  ])('of %j is refused by name', (features, reason) => {
    expect(() => fieldsOf(features)).toThrow(reason)
  })
})
