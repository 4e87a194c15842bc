import { createServer } from 'node:net'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { doctor, type Host, hostFindings } from '../../../src/microvm/doctor/doctor.mjs'
import { HOST_PACKAGES, nameIn } from '../../../src/microvm/doctor/packages.mjs'
import { temporaryFolder } from '../../support/temporary-folder.ts'

const INSTALLED = [
  'qemu-system-x86',
  'gcc',
  'libc6-dev',
  'qemu-system-common',
  'virtiofsd',
  'passt',
  'ovmf',
  'iproute2',
  'nftables',
  'qemu-block-extra',
  'qemu-utils',
]

/** A host that has everything. */
function host(change: Partial<Host> = {}): Host {
  return {
    osRelease: 'NAME="Debian GNU/Linux"\nVERSION_ID="12"\n',
    dpkgStatus: statusOf(INSTALLED),
    cpuinfo: 'flags\t\t: fpu vmx sse\n',
    isWritable: () => true,
    exists: () => true,
    path: '/usr/bin:/opt/bin',
    uid: 0,
    succeeds: () => true,
    ...change,
  }
}

const statusOf = (names: readonly string[]) =>
  names.map((name) => `Package: ${name}\nStatus: install ok installed\nVersion: 1\n`).join('\n')

const missingOn = (change: Partial<Host>) =>
  hostFindings(host(change)).flatMap(({ name, state }) => (state === 'missing' ? [name] : []))

describe('hostFindings', () => {
  it('finds nothing missing on a host that has all', () => {
    expect(missingOn({})).toEqual([])
  })

  it.each([
    ['12', 'package qemu-system-common'],
    ['13', 'package virtiofsd'],
    // A release without a row has the names of the newest.
    ['14', 'package virtiofsd'],
  ])('wants the packages of Debian %s', (release, name) => {
    expect(
      missingOn({ osRelease: `VERSION_ID="${release}"\n`, dpkgStatus: statusOf(['qemu-system-x86']) }),
    ).toContain(name)
    expect(HOST_PACKAGES.map((each) => `package ${nameIn(each, release)}`)).toContain(name)
  })

  it.each([
    [{ dpkgStatus: '' }, HOST_PACKAGES.map((each) => `package ${nameIn(each, '12')}`)],
    [
      { dpkgStatus: statusOf(INSTALLED).replace('install ok installed', 'deinstall ok config-files') },
      ['package qemu-system-x86'],
    ],
    [{ cpuinfo: 'flags\t\t: fpu\n' }, ['KVM']],
    [{ isWritable: (path: string) => path !== '/dev/kvm' }, ['KVM']],
    [
      {
        isWritable: (path: string) => path !== '/dev/vhost-vsock',
        exists: (path: string) => path === '/opt/bin/vhost-device-vsock' || path.startsWith('/sys'),
      },
      [],
    ],
    [
      { isWritable: () => false, exists: (path: string) => path === '/sys/fs/cgroup/memory' },
      ['KVM', 'vsock'],
    ],
    [
      {
        isWritable: (path: string) => path !== '/dev/vhost-vsock',
        exists: (path: string) => path.startsWith('/usr/share/keyrings/') || path.startsWith('/sys'),
      },
      [],
    ],
    [{ exists: () => false }, ['cgroups']],
    [{ succeeds: () => false }, ['PID namespaces']],
    [{ uid: 1000 }, ['root']],
  ] as const)('finds what is missing: %#', (change, names) => {
    expect(missingOn(change)).toEqual(names)
  })

  it('asks for a user namespace, too, where the user is not root', () => {
    const asked: (readonly string[])[] = []
    hostFindings(host({ uid: 1000, succeeds: (argv) => asked.push(argv) > 0 }))
    expect(asked).toEqual([['unshare', '--user', '--map-root-user', '--pid', '--fork', 'true']])
  })

  it('names a remedy for all that is missing', () => {
    const nothing = host({
      dpkgStatus: '',
      cpuinfo: '',
      isWritable: () => false,
      exists: () => false,
      succeeds: () => false,
      uid: 1,
    })
    for (const { detail, state } of hostFindings(nothing))
      expect([state, detail]).toEqual(['missing', expect.stringContaining('want ')])
  })
})

describe('doctor', () => {
  async function run(options: { readonly json?: boolean; readonly host?: Host; readonly socket?: string }) {
    let text = ''
    const status = await doctor({
      json: options.json ?? false,
      socket: options.socket ?? '/nowhere.sock',
      host: options.host ?? host(),
      print: (piece) => {
        text += piece
      },
    })
    return { status, lines: text.trimEnd().split('\n') }
  }

  it('fails only when something needed is missing', async () => {
    expect(await run({ host: host({ cpuinfo: '' }) })).toMatchObject({ status: 0 })
    expect(await run({ host: host({ succeeds: () => false }) })).toMatchObject({ status: 1 })
    expect(await run({ host: host({ dpkgStatus: '' }) })).toMatchObject({ status: 1 })
  })

  it('prints a line for each, with the remedy', async () => {
    const { lines } = await run({ host: host({ dpkgStatus: statusOf(['passt']) }) })
    expect(lines[0]).toBe(
      'missing  package qemu-system-x86: runs machines; want apt-get install qemu-system-x86',
    )
    expect(lines[3]).toMatch(
      /^missing {2}package qemu-system-common \(optional\): shares folders \(virtiofsd\)/,
    )
    expect(lines[4]).toBe('ok       package passt: networks of machines')
    expect(lines.at(-1)).toBe('missing  daemon (optional): none at /nowhere.sock; want ./microvm daemon')
  })

  it('prints one JSON value a line on request', async () => {
    const { lines } = await run({ json: true })
    expect(lines.map((line) => JSON.parse(line))).toContainEqual({
      name: 'KVM',
      state: 'ok',
      isNeeded: false,
      detail: '/dev/kvm',
    })
    expect(lines).toHaveLength(HOST_PACKAGES.length + 6)
  })

  it.each([
    ['runs', 'greeting', (at: string) => `ok       daemon: ${at}`],
    [
      'is stopped',
      '',
      (at: string) => `missing  daemon (optional): the one at ${at} does not answer; it is stopped or hangs`,
    ],
  ])('finds a daemon that %s', async (_state, greeting, line) => {
    const socket = join(temporaryFolder(), 'admin.sock')
    const server = createServer((client) => client.on('error', () => {}).write(greeting)).listen(socket)
    try {
      expect((await run({ socket })).lines.at(-1)).toBe(line(socket))
    } finally {
      server.close()
    }
  })
})
