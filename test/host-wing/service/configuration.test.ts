import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { UIDS } from '../../../src/host/instance/machine/uids.ts'
import { DEFAULT_QUOTA } from '../../../src/host/instance/record/quota.ts'
import { readConfiguration } from '../../../src/host/service/configuration.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

describe('the configuration of the daemon', () => {
  const path = join(temporaryFolder(), 'daemon.toml')
  const read = (text: string) => {
    writeFileSync(path, text)
    return readConfiguration(path)
  }

  it('names the tenants, their users and their folders', async () => {
    const text = `
      [tenants.anne]
      uid = 1000
      folders = ["/srv/anne", "/srv/images/"]
      instances = 2
      memory_mib = 4096
      [tenants.bob-2]
      uid = 0
      cpus = 0`
    expect(await read(text)).toEqual({
      tenants: [
        {
          ...{ name: 'anne', uid: 1000, folders: ['/srv/anne', '/srv/images'] },
          quota: { ...DEFAULT_QUOTA, instances: 2, memoryMib: 4096 },
        },
        { name: 'bob-2', uid: 0, folders: [], quota: { ...DEFAULT_QUOTA, cpus: 0 } },
      ],
      uids: UIDS,
    })
    expect(await read('')).toEqual({ tenants: [], uids: UIDS })
  })

  it('names a collector of spans, over plain HTTP', async () => {
    expect((await read('otlp_endpoint = "http://127.0.0.1:4318"')).otlpEndpoint).toBe(
      'http://127.0.0.1:4318/',
    )
    for (const url of ['"https://a"', '"a:1"', '"http://user@a"', '"http://a?b"', '1'])
      await expect(read(`otlp_endpoint = ${url}`)).rejects.toThrow('otlp_endpoint: want http://HOST')
  })

  it('says who this host is among others, and refuses what no host can be', async () => {
    const files = 'ca = "/etc/ca.pem"\ncert = "/etc/a.pem"\nkey = "/etc/a-key.pem"\n'
    const text = (id: string, more = '') => `[host]\nid = "${id}"\nlisten = "192.0.2.1:7443"\n${files}${more}`
    const more =
      'controllers = ["[2001:db8::9]:7440"]\nnetworks = ["br0"]\nshared_folders = ["/srv/shared/"]\nvolumes = { "/srv/disks" = ["b"] }'
    expect((await read(text('a', more))).host).toEqual({
      id: 'a',
      listen: { host: '192.0.2.1', port: 7443 },
      advertise: { host: '192.0.2.1', port: 7443 },
      controllers: [{ host: '2001:db8::9', port: 7440 }],
      networks: ['br0'],
      sharedFolders: ['/srv/shared'],
      volumes: { '/srv/disks': ['b'] },
      ...{ ca: '/etc/ca.pem', cert: '/etc/a.pem', key: '/etc/a-key.pem' },
    })
    const wrong = [
      [text('A'), 'host.id: "A", want 1 to 63 of a-z, 0-9, . and -'],
      [text('controller'), 'and not "controller"'],
      [text('a', 'advertise = "b"'), 'host.advertise: "b", want HOST:PORT'],
      [text('a', 'controllers = ["b:0"]'), 'host.controllers: "b:0", want HOST:PORT'],
      [text('a', 'controllers = "b:1"'), 'host.controllers: want a list'],
      [text('a', 'networks = ["a b"]'), 'host.networks: "a b", want'],
      [text('a', 'shared_folders = ["srv"]'), 'host.shared_folders: "srv", want an absolute path'],
      [text('a', 'volumes = ["/srv"]'), 'host.volumes: want the ids of hosts by folder'],
      [text('a', 'volumes = { disks = ["b"] }'), 'host.volumes: "disks", want an absolute path'],
      [text('a', 'volumes = { "/srv" = "b" }'), 'host.volumes: /srv: want a list'],
      [text('a', 'volumes = { "/srv" = ["B"] }'), 'host.volumes: "B", want a host\'s id'],
      [text('a', 'port = 1'), 'host.port: unknown'],
      [`[host]\nid = "a"\n${files}`, 'host.listen: undefined, want HOST:PORT'],
      [text('a').replace('/etc/a.pem', 'a.pem'), 'host.cert: "a.pem", want an absolute path'],
    ] as const
    for (const [given, message] of wrong) await expect(read(given)).rejects.toThrow(message)
  })

  it('gives the range of the users of instances', async () => {
    const { uids } = await read('[uids]\nfirst = 200000\ncount = 10')
    expect(uids).toEqual({ first: 200_000, count: 10 })
  })

  it('names the catalogue', async () => {
    expect(await read('catalogue = "/srv/catalogue.toml"')).toMatchObject({
      catalogue: '/srv/catalogue.toml',
    })
  })

  it.each([
    ['catalogue = "catalogue.toml"', 'catalogue: "catalogue.toml", want an absolute path without . and ..'],
    ['tenants = 1', 'tenants: want a table'],
    ['[tenant.anne]\nuid = 1', 'tenant: unknown'],
    ['[tenants.anne]\nuid = 1\nfolder = "/x"', 'tenants.anne.folder: unknown'],
    ['[tenants.Anne]\nuid = 1', 'tenants.Anne: invalid name, want 1 to 32 of a-z, 0-9, _ and -'],
    ['[tenants."../x"]\nuid = 1', 'tenants.../x: invalid name'],
    ['[tenants.anne]', 'tenants.anne.uid: want the number of a user'],
    ['[tenants.anne]\nuid = -1', 'tenants.anne.uid: want the number of a user'],
    ['[tenants.anne]\nuid = 4294967295', 'tenants.anne.uid: want the number of a user'],
    ['[tenants.anne]\nuid = 1\ninstances = -1', 'tenants.anne.instances: want a whole number'],
    ['[tenants.anne]\nuid = 1\nmemory_mib = "1 GiB"', 'tenants.anne.memory_mib: want a whole number'],
    ['[tenants.anne]\nuid = 1\ncpus = 1.5', 'tenants.anne.cpus: want a whole number'],
    ['[tenants.anne]\nuid = 1\nfolders = "/x"', 'tenants.anne.folders: want a list of paths'],
    [
      '[tenants.anne]\nuid = 1\nfolders = ["/x/../y"]',
      'tenants.anne.folders: "/x/../y", want an absolute path',
    ],
    ['[tenants.anne]\nuid = 1\nfolders = ["x"]', 'tenants.anne.folders: "x", want an absolute path'],
    ['[tenants.anne]\nuid = 1\nfolders = ["/"]', 'tenants.anne.folders: "/", want an absolute path'],
    ['[uids]\nfirst = 0', 'uids.first: want the number of a user above 0'],
    ['[uids]\ncount = "all"', 'uids.count: want at least 1, and no user above 4294967294'],
    ['[uids]\nfirst = 4294967290\ncount = 6', 'uids.count: want at least 1, and no user above 4294967294'],
    ['[uids]\nlast = 6', 'uids.last: unknown'],
    ['[uids]\nfirst = 990\ncount = 11\n[tenants.anne]\nuid = 1000', 'uids: 1000 is tenant anne'],
    ['[tenants', 'Invalid TOML document'],
  ])('refuses %j by name', async (text, message) => {
    await expect(read(text)).rejects.toMatchObject({
      code: 'INVALID_ARGUMENT',
      message: expect.stringContaining(`${path}: ${message}`),
    })
  })

  it('says that there is no such file', async () => {
    await expect(readConfiguration('/nowhere/daemon.toml')).rejects.toThrow('/nowhere/daemon.toml: ENOENT')
  })
})
