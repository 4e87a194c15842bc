import { parse } from 'smol-toml'
import { describe, expect, it } from 'vitest'
import { NO_CATALOGUE, readCatalogue } from '../../../src/host/catalogue/catalogue.ts'

const refusal = (value: unknown) => {
  try {
    readCatalogue(value)
  } catch (error) {
    return String(error).replace('AgentError: ', '')
  }
  return 'taken'
}

const volume = (own: Readonly<Record<string, unknown>>) => ({
  roots: ['/srv'],
  volumes: { a: { path: '/srv/a', ...own } },
})

const ofServer = (own: Readonly<Record<string, unknown>>) => ({
  volumes: { a: { url: 'https://host/a', ...own } },
})

const ofNbd = (own: Readonly<Record<string, unknown>>) => ({
  roots: ['/srv'],
  secrets: { key: { id: '6b3f0c62-3d1e-4f0a-9a55-0f4f8f0c2d11' } },
  volumes: {
    a: Object.fromEntries(
      Object.entries({ url: 'nbds://host/a', ca: '/srv/ca.pem', ...own }).filter(([, value]) => value),
    ),
  },
})

describe('a catalogue', () => {
  it('is empty without tables', () => {
    expect(readCatalogue({})).toEqual(NO_CATALOGUE)
  })

  it('has tables of names, each with what is behind it and who may use it', () => {
    const catalogue = readCatalogue(
      parse(`
        roots = ["/srv/machines"]
        volumes.web = { path = "/srv/machines/web", tenants = ["anne"], limits = { iops = 500 } }
        networks.lan = { bridge = "br0" }
        cpu_pools.fast = { cpus = "2-3,8", tenants = ["anne"] }
      `),
    )
    expect(catalogue.volumes.web).toMatchObject({ path: '/srv/machines/web', limits: { iops: 500 } })
    expect(catalogue.cpu_pools.fast?.cpus).toEqual([2, 3, 8])
  })

  it.each<[unknown, string]>([
    [{ volume: {} }, 'volume: unknown field, did you mean "volumes"?'],
    [volume({ readonly: true }), 'volumes.a.readonly: unknown field, did you mean "read_only"?'],
    [volume({ path: 'a' }), 'volumes.a.path: "a", want an absolute path'],
    [volume({ path: '/srv/../etc/shadow' }), 'volumes.a.path: "/srv/../etc/shadow": has ".."'],
    [
      volume({ path: '/srv/./a' }),
      'volumes.a.path: "/srv/./a": want it without ".", "//" and a "/" at its end',
    ],
    [volume({ path: '/etc/shadow' }), 'volumes.a.path: "/etc/shadow": want one below /srv'],
    [volume({ path: '/srvb/a' }), 'volumes.a.path: "/srvb/a": want one below /srv'],
    [{ volumes: { a: { path: '/a' } } }, 'volumes.a.path: "/a": want the folder above in roots'],
    [{ roots: ['/'] }, 'roots[0]: "/": want a folder other than /, without ".", "//" and a "/" at its end'],
    [volume({ format: 'vmdk' }), 'volumes.a.format: "vmdk", want raw, qcow2'],
    [volume({ tenants: 'anne' }), 'volumes.a.tenants: "anne", want a list'],
    [
      volume({ tenants: ['../anne'] }),
      'volumes.a.tenants[0]: "../anne", want the name of a tenant: 1 to 32 of a-z, 0-9, _ and -',
    ],
    [volume({ limits: { iops: 0 } }), 'volumes.a.limits.iops: 0, want a whole number, 1 to 9007199254740991'],
    [volume({ url: 'https://host/a' }), 'volumes.a: want path or url'],
    [{ volumes: { a: {} } }, 'volumes.a: want path or url'],
    [volume({ username: 'web' }), 'volumes.a.username: is for https and iscsi'],
    ...[
      'http://host/a',
      'https://web:password@host/a',
      'https://host/a?token=1',
      'iscsi://host/target/0',
      'iscsi://web@host/iqn.a:b/0',
      'nbd://host/disk',
      'nbds://web@host/disk',
      'nbds://host/a?b=1',
      'https://host',
    ].map((url): [unknown, string] => [
      { volumes: { a: { url } } },
      `volumes.a.url: ${JSON.stringify(url)}, want https://images.example/disk.raw, iscsi://storage.example/iqn.2026-11.example:disk/1 or nbds://storage.example/disk, without user, password and query`,
    ]),
    [ofNbd({ ca: undefined }), 'volumes.a.ca: missing, nbds has no certificates of its own'],
    [ofNbd({ ca: '/etc/ca.pem' }), 'volumes.a.ca: "/etc/ca.pem": want one below /srv'],
    [ofNbd({ ca: '/srv/../ca.pem' }), 'volumes.a.ca: "/srv/../ca.pem": has ".."'],
    [ofNbd({ username: 'web', secret: 'key' }), 'volumes.a.username: is for https and iscsi'],
    [ofNbd({ tls_name: 'a b' }), 'volumes.a.tls_name: "a b", want the name of a host'],
    [volume({ tls_name: 'host' }), 'volumes.a.tls_name: is for a url of nbds'],
    [volume({ ca: '/srv/ca.pem' }), 'volumes.a.ca: is for a url of nbds'],
    [
      {
        roots: ['/srv'],
        volumes: {
          a: { url: 'nbds://HOST/a', ca: '/srv/ca.pem' },
          b: { url: 'nbds://host:10809/a', ca: '/srv/b.pem' },
        },
      },
      'volumes.b.url: already the disk of volumes.a',
    ],
    [ofServer({ url: 'https://[::/a' }), 'volumes.a.url: "https://[::/a": no address'],
    [ofServer({ format: 'qcow2' }), 'volumes.a.format: qcow2: of a server only raw disks'],
    [ofServer({ read_only: false }), 'volumes.a.read_only: false: https writes nothing'],
    [ofServer({ url: 'iscsi://host:3260/iqn.2026-11.a:b/0', read_only: false }), 'taken'],
    [
      {
        volumes: {
          a: { url: 'iscsi://HOST/iqn.2026-11.A:b/01' },
          b: { url: 'iscsi://host:3260/iqn.2026-11.a:b/1' },
        },
      },
      'volumes.b.url: already the disk of volumes.a',
    ],
    [ofServer({ username: 'web' }), 'volumes.a: a url has username and secret, or neither'],
    [ofServer({ username: 'a:b' }), 'volumes.a.username: "a:b", want a name without a colon'],
    [volume({ secret: 'key' }), 'volumes.a.secret: "key": not in secrets, want one of them'],
    [{ ...volume({}), images: { a: { path: '/srv/b' } } }, 'images.a: already the name of volumes.a'],
    [{ volumes: { '../a': {} } }, 'volumes: "../a", want a name of 1 to 63 letters, digits, _, . or -'],
    [{ networks: { lan: {} } }, 'networks.lan: want bridge, interface, or passt = true'],
    [
      { networks: { lan: { bridge: 'br0', passt: true } } },
      'networks.lan: passt has no bridge and no interface',
    ],
    [
      { networks: { lan: { bridge: 'br/0' } } },
      'networks.lan.bridge: "br/0": invalid, want 1 to 15 printable characters without "/", ":" and "%"',
    ],
    [
      { networks: { a: { interface: 'tap0' }, b: { interface: 'tap0' } } },
      'networks.b.interface: tap0: already that of networks.a',
    ],
    [{ secrets: { key: { id: 'key' } } }, 'secrets.key.id: "key", want a UUID'],
    [{ cpu_pools: { a: { cpus: '3-2' } } }, 'cpu_pools.a.cpus: 3-2: want 0 to 8191, the lower number first'],
    [{ cpu_pools: { a: { cpus: '1,1' } } }, 'cpu_pools.a.cpus: 1: already one of cpu_pools.a'],
    [
      { cpu_pools: { a: { cpus: '1-2' }, b: { cpus: '2' } } },
      'cpu_pools.b.cpus: 2: already one of cpu_pools.a',
    ],
    ['a', '"a", want an object with roots, volumes, images, networks, folders, secrets, cpu_pools'],
  ])('refuses %j', (value, text) => {
    expect(refusal(value).replace(/^: /, '')).toBe(text)
  })

  it('has each name once, which TOML itself sees to', () => {
    expect(() => parse('[volumes.a]\n[volumes.a]')).toThrow(/redeclar|already/)
  })
})
