import { describe, expect, it } from 'vitest'
import { readCatalogue } from '../../../src/host/catalogue/catalogue.ts'
import { resolveBackends, resolveSecrets } from '../../../src/host/catalogue/resolve-backends.ts'
import { readDocument } from '../../../src/host/machine/document/document.ts'
import { fieldsOf } from '../../../src/host/machine/expand.ts'
import { expanded } from '../../support/host-wing/expansion.ts'

const both = { tenants: ['anne', 'bob'] }
const anne = { tenants: ['anne'] }
const KEY = '11111111-2222-3333-4444-555555555555'

const CATALOGUE = readCatalogue({
  roots: ['/srv'],
  volumes: {
    anne: { path: '/srv/anne', limits: { iops: 100 }, ...anne },
    bob: { path: '/srv/bob', tenants: ['bob'] },
    old: { path: '/srv/old', format: 'qcow2', read_only: true, ...both },
    safe: { path: '/srv/safe', secret: 'key', ...anne },
    web: { url: 'https://host/disk', limits: { iops: 100 } },
    export: { url: 'nbds://host/disk', ca: '/srv/ca.pem', tls_name: 'disks', secret: 'key' },
    unit: { url: 'iscsi://host/iqn.a:b/1', username: 'web', secret: 'key' },
  },
  images: { kernel: { path: '/srv/kernel', ...both }, cd: { path: '/srv/cd', ...both } },
  networks: { lan: { bridge: 'br0', ...both }, out: { passt: true, ...anne }, line: { interface: 'tap7' } },
  folders: {
    shared: { path: '/srv/shared', ...both },
    fixed: { path: '/srv/fixed', read_only: true, ...both },
  },
  secrets: { key: { id: KEY, ...anne } },
})

type Features = Readonly<Record<string, unknown>>

const resolved = (features: Features, tenant: string | undefined = 'anne', domain?: unknown) =>
  resolveBackends(expanded(features, domain === undefined ? {} : { domain }), tenant, CATALOGUE)

/** By the document's own fields. */
function refusal(features: Features, tenant: string | undefined = 'anne'): unknown {
  const document = readDocument({ kind: 'VM', spec: { features } })
  const fields = fieldsOf(document, { isPrivileged: false })
  try {
    resolveBackends(expanded(features), tenant, CATALOGUE, { fields })
  } catch (error) {
    return error
  }
  return 'taken'
}

const MISSING = (text: string) => ({ code: 'FAILED_PRECONDITION', message: text })

describe('what the catalogue puts behind a machine', () => {
  it('is a file for a volume, with the lower of both limits', () => {
    const limits = { iopsTotal: 500, bytesPerSecond: 1000 }
    expect(resolved({ storage: [{ source: 'anne', cache: 'none', limits }] })['disk0-backend']).toEqual({
      ...{ kind: 'file', path: '/srv/anne', access: 'read-write', format: 'raw', cache: 'none' },
      limits: { iopsTotal: 100, bytesPerSecond: 1000 },
    })
  })

  it('has the format and the secret of the volume', () => {
    const disks = [{ source: 'old', readonly: true }, { source: 'safe' }, { type: 'cdrom', source: 'cd' }]
    expect(resolved({ storage: disks })).toMatchObject({
      'disk0-backend': { path: '/srv/old', access: 'read-only', format: 'qcow2' },
      'disk1-backend': { path: '/srv/safe', encryption: { secret: KEY } },
      'cdrom0-backend': { path: '/srv/cd', access: 'read-only', format: 'raw' },
    })
  })

  it('is a disk of a server, which is only read by https', () => {
    const storage = [{ source: 'web', readonly: true }, { source: 'unit' }, { source: 'export' }]
    const kind = 'network-disk'
    expect(resolveBackends(expanded({ storage }), undefined, CATALOGUE)).toMatchObject({
      'disk0-backend': { kind, url: 'https://host/disk', access: 'read-only', limits: { iopsTotal: 100 } },
      'disk1-backend': { kind, access: 'read-write', login: { username: 'web', secret: KEY } },
      'disk2-backend': { kind, tls: { ca: '/srv/ca.pem', name: 'disks', secret: KEY } },
    })
    const written = () => resolveBackends(expanded({ storage: [{ source: 'web' }] }), undefined, CATALOGUE)
    expect(written).toThrow('backends.disk0-backend.readonly: "web" is read-only, want true')
    const threads = expanded({ storage: [{ source: 'unit', io: 'threads' }] })
    expect(() => resolveBackends(threads, undefined, CATALOGUE)).toThrow(
      'backends.disk0-backend.io: threads: of a file only, and "unit" has a server',
    )
  })

  it('is a tap of its own on a bridge, a named tap, or passt', () => {
    const network = ['lan', 'lan', 'out'].map((source) => ({ source }))
    const { 'nic0-backend': first, 'nic1-backend': second, 'nic2-backend': third } = resolved({ network })
    expect(first).toMatchObject({
      kind: 'tap',
      bridge: 'br0',
      interfaceName: expect.stringMatching(/^mv[0-9a-f]{12}$/),
    })
    expect(first).not.toEqual(second)
    expect(third).toEqual({ kind: 'passt' })
    expect(resolveBackends(expanded({ network: [{ source: 'line' }] }), undefined, CATALOGUE)).toMatchObject({
      'nic0-backend': { kind: 'tap', interfaceName: 'tap7', bridge: undefined },
    })
  })

  it('is what the firmware loads, a folder by virtiofsd or 9p, and a secret by its id', () => {
    const features = {
      firmware: { kernel: 'kernel' },
      share: [
        { source: 'shared', tag: 'a' },
        { source: 'fixed', tag: 'b', type: '9p' },
      ],
      graphics: { type: 'vnc', password: 'key' },
    }
    expect(resolved(features)).toEqual({
      'share0-backend': { kind: 'virtiofsd', path: '/srv/shared' },
      'share1-backend': { kind: 'folder', path: '/srv/fixed', readOnly: true },
      'firmware-kernel': { kind: 'content', path: '/srv/kernel' },
    })
    expect(resolveSecrets(expanded(features), 'anne', CATALOGUE)).toEqual({ 'display0-backend': KEY })
  })

  it('is nothing for an empty drive, and for an optional one whose volume is missing', () => {
    const storage = [{ type: 'cdrom' }, { type: 'cdrom', source: 'gone', optional: true }]
    expect(resolved({ storage, console: 'none' })).toEqual({})
  })

  it('is a path of the host in what an administrator gives', () => {
    const domain = {
      devices: { disks: [{ type: 'file', source: { file: '/dev/sda' }, target: { bus: 'virtio' } }] },
    }
    expect(resolveBackends(expanded({}, { domain }), undefined, CATALOGUE)['disk0-backend']).toEqual({
      ...{ kind: 'file', path: '/dev/sda', access: 'read-write', format: 'raw' },
    })
  })
})

describe('a name that a tenant may not use', () => {
  it.each([
    [
      { storage: [{ source: 'bob' }] },
      'spec.features.storage[0].source: volume "bob": not in the catalogue for tenant anne, want anne, old, safe, kernel, cd',
    ],
    [
      { storage: [{ source: 'ane' }] },
      'spec.features.storage[0].source: volume "ane": not in the catalogue for tenant anne, did you mean "anne"?',
    ],
    [
      { network: [{ source: 'line' }] },
      'spec.features.network[0].source: network "line": not in the catalogue for tenant anne, want lan, out',
    ],
    [
      { firmware: { kernel: 'secret-kernel' } },
      'spec.features.firmware.kernel: image "secret-kernel": not in the catalogue for tenant anne, want kernel, cd',
    ],
    [
      { share: [{ source: 'etc', tag: 'a' }] },
      'spec.features.share[0].source: folder "etc": not in the catalogue for tenant anne, want shared, fixed',
    ],
    [
      { graphics: { type: 'vnc', password: 'other', listen: '0.0.0.0' } },
      'spec.features.graphics.password: secret "other": not in the catalogue for tenant anne, want key; ' +
        'spec.features.graphics.listen: network "0.0.0.0": not in the catalogue for tenant anne, want lan, out',
    ],
    [{ storage: [{ source: 'old' }] }, 'spec.features.storage[0].readonly: "old" is read-only, want true'],
    [
      { storage: [{ source: 'anne', format: 'qcow2' }] },
      'spec.features.storage[0].format: qcow2: "anne" is raw',
    ],
    [
      { storage: [{ source: 'anne' }, { source: 'anne' }] },
      'spec.features.storage[1].source: "anne": already that of spec.features.storage[0].source',
    ],
    [
      { storage: [{ source: 'anne', readonly: true }, { source: 'anne' }] },
      'spec.features.storage[1].source: "anne": already that of spec.features.storage[0].source',
    ],
    [
      { share: [{ source: 'fixed', tag: 'a' }] },
      'spec.features.share[0].type: virtio-fs: "fixed" is read-only, which only 9p can keep',
    ],
    [
      { share: [{ source: 'shared', tag: 'a', type: '9p' }] },
      'spec.features.share[0].type: 9p: only for folders that are read-only, want virtio-fs',
    ],
  ])('is refused by the field of the document: %j', (features, text) => {
    expect(refusal(features)).toMatchObject(MISSING(text))
  })

  it('is told like one that nobody has, so that no tenant learns of the others', () => {
    const [other, none] = ['bob', 'xxx'].map((source) => String(refusal({ storage: [{ source }] })))
    expect(other?.replace('bob', 'xxx')).toBe(none)
    expect(refusal({ storage: [{ source: 'safe' }], network: [{ source: 'out' }] }, 'bob')).toMatchObject({
      message: expect.stringMatching(/storage\[0\].*network\[0\]/),
    })
    expect(refusal({ storage: [{ source: 'bob' }] }, 'bob')).toBe('taken')
    expect(refusal({ storage: [{ source: 'bob' }] }, '')).toBe('taken')
  })

  it('is the machine’s field without a document', () => {
    expect(() => resolved({ storage: [{ source: 'bob' }] })).toThrow(
      /^backends.disk0-backend.source: volume "bob"/,
    )
  })

  it('may be a path or a bridge of the host in no machine of a tenant', () => {
    const domain = {
      devices: {
        disks: [{ type: 'file', source: { file: '/dev/sda' }, target: { bus: 'virtio' } }],
        interfaces: [
          { type: 'bridge', source: { bridge: 'br0' } },
          { type: 'ethernet', target: { dev: 'tap0' } },
        ],
        rng: { backend: 'random', path: '/dev/random' },
        channels: [{ type: 'unix', source: { path: '/run/a' }, target: { type: 'virtio', name: 'a' } }],
      },
    }
    expect(() => resolved({}, 'anne', domain)).toThrow(
      expect.objectContaining({
        code: 'PERMISSION_DENIED',
        message: [
          "backends.disk0-backend.path: is the host's, want a name of the catalogue",
          "backends.nic0-backend.source: is the host's, want a name of the catalogue",
          "backends.nic1-backend.source: is the host's, want a name of the catalogue",
          "backends.rng0-backend.path: is the host's, want a name of the catalogue",
          "backends.channel0-backend.path: is the host's, want a name of the catalogue",
        ].join('; '),
      }),
    )
  })

  it.each([
    [{ storage: [{ source: '/dev/sda' }] }, 'storage[0].source: "/dev/sda", want a name'],
    [{ storage: [{ source: { kind: 'file', path: '/dev/sda' } }] }, 'storage[0].source.path: unknown field'],
    [{ storage: [{ source: 'a,snapshot=on' }] }, 'storage[0].source: "a,snapshot=on", want a name'],
    [{ network: [{ source: { bridge: 'br0' } }] }, 'network[0].source.bridge: unknown field'],
    [{ network: [{ source: 'br0', script: '/bin/sh' }] }, 'network[0].script: unknown field'],
    [{ share: [{ source: '/etc', tag: 'a' }] }, 'share[0].source: "/etc", want a name'],
    [{ channel: [{ name: 'a', path: '/run/a' }] }, "channel[0].path: is the host's, want a name"],
    [{ rng: { path: '/dev/random' } }, "rng.path: is the host's, want a name"],
    [{ graphics: { type: 'vnc', port: 5900 } }, 'graphics.port: unknown field'],
    [{ graphics: { type: 'vnc', listen: '::1' } }, 'graphics.listen: "::1", want a name'],
    [{ firmware: { kernel: '/boot/vmlinuz' } }, 'firmware.kernel: "/boot/vmlinuz", want a name'],
    [{ cpu: { model: 'host,+vmx' } }, 'cpu.model: "host,+vmx", want a CPU model'],
    [{ qemu: ['-daemonize'] }, 'qemu: unknown field'],
  ])('is no path, interface, port or word of QEMU: %j', (features, text) => {
    expect(() => readDocument({ kind: 'VM', spec: { features } })).toThrow(`spec.features.${text}`)
  })
})
