import { execFileSync } from 'node:child_process'
import {
  chmodSync,
  closeSync,
  existsSync,
  openSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  statSync,
  symlinkSync,
} from 'node:fs'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { Readable } from 'node:stream'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { Backend, Device, type Instance } from '../../../src/gen/microvm/instance/v1/instance.ts'
import { readExits } from '../../../src/host/instance/holder/holder-files.ts'
import type { Instances } from '../../../src/host/instance/instances.ts'
import { UIDS } from '../../../src/host/instance/machine/uid-range.ts'
import { memoryRegistry } from '../../../src/host/instance/registry/memory-registry.ts'
import { instanceFolderName, specKey } from '../../../src/host/spec/spec-key.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import { type Attempt, attemptAs } from '../../support/wing/as-user.ts'
import { leftovers } from '../../support/wing/leftovers.ts'
import { image, lifePlan, openReal } from '../../support/wing/real-wing.ts'
import { ADMIN, file, tenant } from '../../support/wing/requests.ts'

const BRIDGE = 'wallbr0'
const TAP = 'walltap0'

const state = temporaryFolder()
const disks = join(state, 'disks')
const { request } = lifePlan(disks)
const disk = image(disks, 'private', 8)
let instances: Instances
let one: Instance
let other: Instance
let folder: string

/** Two machines of two tenants; the first has a vsock, a console and a tap besides its disk. */
beforeAll(async () => {
  execFileSync('ip', ['link', 'add', BRIDGE, 'type', 'bridge'])
  chmodSync(disk, 0o600)
  instances = await openReal(state, memoryRegistry())
  const { specification } = request
  if (specification === undefined) throw new Error('no specification')
  const mac = '52:54:00:00:00:0a'
  one = await instances.ensure(
    {
      properties: { key: 'one', tenant: 'anne', labels: {} },
      specification: {
        ...specification,
        devices: {
          ...specification.devices,
          card: Device.fromPartial({ backend: 'net', slot: 7, nic: { mac } }),
          link: Device.fromPartial({ backend: 'link-daemon', slot: 8, vsock: {} }),
          console: Device.fromPartial({ backend: 'output', serial: {} }),
        },
        backends: {
          'root-file': file(disk),
          net: Backend.fromPartial({ tap: { interfaceName: TAP, bridge: BRIDGE } }),
          'link-daemon': Backend.fromPartial({ vsockDaemon: {} }),
          output: Backend.fromPartial({ console: {} }),
        },
      },
    },
    ADMIN,
  )
  const backends = { 'root-file': file(image(disks, 'other-root', 8)) }
  const properties = { key: 'other', tenant: 'bert', labels: {} }
  other = await instances.ensure({ properties, specification: { ...specification, backends } }, ADMIN)
  folder = join(state, 'instances', instanceFolderName(specKey('one')))
  // As with tenants, and more: only the instance's own folder is in the way.
  for (const each of [state, join(state, 'instances'), disks]) chmodSync(each, 0o711)
})

afterAll(async () => {
  for (const { properties } of [one, other]) await instances.remove(properties?.key ?? '', ADMIN)
  await instances.close()
  execFileSync('ip', ['link', 'del', BRIDGE])
  expect(leftovers(state)).toEqual([])
})

function pathsBelow(path: string): readonly string[] {
  const entries = readdirSync(path, { withFileTypes: true })
  return entries.flatMap((entry) => {
    const each = join(path, entry.name)
    return entry.isDirectory() ? [each, ...pathsBelow(each)] : [each]
  })
}

/** The children of the first instance's holder. */
async function processes(): Promise<readonly number[]> {
  return (await readExits(folder)).flatMap(({ pid, exit }) => (exit === undefined ? [pid] : []))
}

function statusOf(pid: number): ReadonlyMap<string, string> {
  const lines = readFileSync(`/proc/${pid}/status`, 'utf8').split('\n')
  return new Map(lines.map((line) => line.split(/:\s+/, 2) as [string, string]))
}

describe('the processes of an instance', () => {
  it('are a user of their own, without rights of root', async () => {
    expect([one.uid, other.uid]).toEqual([UIDS.first, UIDS.first + 1])
    const pids = await processes()
    expect(pids).toHaveLength(2)
    for (const pid of pids) {
      const status = statusOf(pid)
      const ids = Array.from({ length: 4 }, () => one.uid).join('\t')
      expect([status.get('Uid'), status.get('Gid'), status.get('Groups')?.trim()]).toEqual([ids, ids, ''])
      expect([status.get('CapEff'), status.get('CapPrm')]).toEqual(['0000000000000000', '0000000000000000'])
      expect(status.get('NoNewPrivs')).toBe('1')
    }
    expect(statusOf(other.qemuPid).get('Uid')).toContain(`${other.uid}`)
  })

  it('are in a network of their own, and QEMU has a filter of system calls', async () => {
    for (const pid of await processes()) {
      expect(readlinkSync(`/proc/${pid}/ns/net`)).not.toBe(readlinkSync('/proc/self/ns/net'))
      const interfaces = readFileSync(`/proc/${pid}/net/dev`, 'utf8').trim().split('\n').slice(2)
      expect(interfaces.map((line) => line.trim().split(':')[0])).toEqual(['lo'])
    }
    expect(statusOf(one.qemuPid).get('Seccomp')).toBe('2')
  })

  it('can write in one folder only, and open nothing of the host by its path', () => {
    const own = join(folder, 'run')
    const attempts: Attempt[] = [
      ...pathsBelow(folder)
        .filter((path) => !path.startsWith(own))
        .flatMap((path): Attempt[] => [
          ['read', path],
          ['write', path],
          ['connect', path],
        ]),
      ['create', join(folder, 'new')],
      ['read', disk],
      ['write', disk],
    ]
    expect(attemptAs(one.uid, attempts).done).toEqual([])
    expect(attemptAs(one.uid, [['list', own]]).done).toHaveLength(1)
  })
})

describe("another instance's user", () => {
  it('opens no file of it', () => {
    const attempts = pathsBelow(folder).flatMap((path): Attempt[] => [
      ['read', path],
      ['write', path],
      ['list', path],
    ])
    const files: Attempt[] = [
      ['list', folder],
      ['create', join(folder, 'run', 'new')],
      ['read', disk],
      ['write', disk],
    ]
    expect(attempts.length).toBeGreaterThan(15)
    expect(attemptAs(other.uid, [...attempts, ...files])).toEqual({ done: [], errors: new Set(['EACCES']) })
  })

  it('connects to no socket of it', async () => {
    const { port } = await instances.allocatePort(
      { key: 'one', container: 'c', exec: '', stream: 'stdout' },
      ADMIN,
    )
    const sockets = pathsBelow(folder).filter((path) => statSync(path).isSocket())
    expect(sockets.map((path) => path.slice(folder.length + 1)).sort()).toEqual([
      'holder.sock',
      'qmp.sock',
      'run/vhost-user.sock',
      'run/vsock.sock',
      `run/vsock.sock_${port}`,
    ])
    const attempts = sockets.map((path): Attempt => ['connect', path])
    expect(attemptAs(other.uid, attempts)).toEqual({ done: [], errors: new Set(['EACCES']) })
    // The vsock daemon reaches what the holder listens at for the guest.
    expect(attemptAs(one.uid, [['connect', join(folder, 'run', `vsock.sock_${port}`)]]).done).toHaveLength(1)
  })

  it('reads nothing of its processes in /proc', async () => {
    const pids = [one.holderPid, ...(await processes())]
    const attempts = pids.flatMap((pid): Attempt[] => [
      ['read', `/proc/${pid}/mem`],
      ['write', `/proc/${pid}/mem`],
      ['read', `/proc/${pid}/environ`],
      ['read', `/proc/${pid}/maps`],
      ['list', `/proc/${pid}/fd`],
      ['follow', `/proc/${pid}/cwd`],
      ['follow', `/proc/${pid}/root`],
      ['list', `/proc/${pid}/map_files`],
    ])
    const { done, errors } = attemptAs(other.uid, attempts)
    expect(done).toEqual([])
    expect([...errors].every((name) => name === 'EACCES' || name === 'EPERM')).toBe(true)
  })

  it('traces and signals none of its processes', async () => {
    const pids = [one.holderPid, ...(await processes())]
    const attempts = pids.flatMap((pid): Attempt[] => [
      ['trace', `${pid}`],
      ['signal', `${pid}`],
    ])
    expect(attemptAs(other.uid, attempts)).toEqual({ done: [], errors: new Set(['EPERM']) })
  })

  it('takes neither its tap nor another, even where all may open /dev/net/tun', () => {
    expect(existsSync(`/sys/class/net/${TAP}`)).toBe(true)
    const tun = openSync('/dev/net/tun', 'r+')
    try {
      const { done, errors } = attemptAs(
        other.uid,
        [
          ['tap', TAP],
          ['tap', 'walltap1'],
        ],
        tun,
      )
      expect(done).toEqual([])
      expect([...errors].every((name) => name === 'EBUSY' || name === 'EPERM')).toBe(true)
    } finally {
      closeSync(tun)
    }
  })

  it('opens its disk in no second QEMU', async () => {
    const { specification } = request
    const backends = { 'root-file': file(disk) }
    const properties = { key: 'third', tenant: '', labels: {} }
    const made = instances.ensure(
      { properties, specification: specification && { ...specification, backends } },
      ADMIN,
    )
    await expect(made).rejects.toThrow(`${disk}: in use by instance one`)
  })
})

describe('a socket that an instance puts in the place of its own', () => {
  it('is not connected to when it is a link to another', async () => {
    const path = join(folder, 'run', 'vsock.sock')
    const stolen = join(state, 'stolen.sock')
    let connections = 0
    const server = createServer((socket) => {
      connections++
      socket.destroy()
    })
    await new Promise<void>((resolve) => server.listen(stolen, resolve))
    execFileSync('rm', [path])
    symlinkSync(stolen, path)
    const agent = instances.connectAgent('one', Readable.from([]), tenant('anne'))
    await expect(agent[Symbol.asyncIterator]().next()).rejects.toMatchObject({ code: 'PERMISSION_DENIED' })
    expect(connections).toBe(0)
    server.close()
  })
})
