import { execFileSync, spawn } from 'node:child_process'
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
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import {
  Backend,
  Device,
  File_Access,
  BackendStatus_Health as Health,
  type Instance,
  type Specification,
} from '../../../../src/gen/microvm/instance/v1/instance.ts'
import { openSocketOf } from '../../../../src/host/instance/connect-agent.ts'
import { readExits } from '../../../../src/host/instance/holder/holder-files.ts'
import type { Instances } from '../../../../src/host/instance/instances.ts'
import { UIDS } from '../../../../src/host/instance/machine/uids.ts'
import { memoryRegistry } from '../../../../src/host/instance/registry/memory-registry.ts'
import { findVsockDaemon } from '../../../../src/host/qemu/vsock/choose-link.ts'
import { instanceFolderName, specKey } from '../../../../src/host/spec/spec-key.ts'
import { temporaryFolder } from '../../../support/temporary-folder.ts'
import { type Attempt, attemptAs } from '../../../support/wing/as-user.ts'
import { leftovers } from '../../../support/wing/leftovers.ts'
import { image, lifePlan, openReal } from '../../../support/wing/real-wing.ts'
import { ADMIN, file } from '../../../support/wing/requests.ts'

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
  for (const { properties } of instances.list(ADMIN)) await instances.remove(properties?.key ?? '', ADMIN)
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
    expect(one.uid).not.toBe(other.uid)
    for (const { uid } of [one, other])
      expect(uid - UIDS.first).toSatisfy((index: number) => index >= 0 && index < UIDS.count)
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

  it('see only the processes of the instance', async () => {
    for (const pid of await processes()) {
      const words = ['--mount', '--target', `${pid}`, 'ls', '/proc']
      const names = execFileSync('nsenter', words, { encoding: 'utf8' }).split('\n')
      const pids = names.filter((name) => /^\d+$/.test(name))
      expect(pids.length).toBeLessThanOrEqual(1 + (await processes()).length)
      expect(pids).toContain('1')
    }
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

describe('QEMU within walls', () => {
  /** A machine of the administrator; the files have mode 0600. */
  const ensure = async (key: string, change: (specification: Specification) => Partial<Specification>) => {
    const { specification } = request
    if (specification === undefined) throw new Error('no specification')
    const backends = { 'root-file': file(privateImage(`${key}-root`)) }
    const own = { ...specification, backends }
    const properties = { key, tenant: '', labels: {} }
    return await instances.ensure({ properties, specification: { ...own, ...change(own) } }, ADMIN)
  }
  const privateImage = (name: string): string => {
    const path = image(disks, name, 16)
    chmodSync(path, 0o600)
    return path
  }

  it('has what it opens at its start: an initrd, a firmware item, persistent memory, a scratch disk', async () => {
    const memory = image(disks, 'memory', 16)
    const loop = execFileSync('losetup', ['--find', '--show', privateImage('loop')], {
      encoding: 'utf8',
    }).trim()
    onTestFinished(() => void execFileSync('losetup', ['--detach', loop]))
    const { uid, qemuPid, backends } = await ensure('many', ({ board, ...specification }) => ({
      board: board && { ...board, initrd: privateImage('initrd') },
      devices: {
        ...specification.devices,
        item: Device.fromPartial({ backend: 'content', firmwareItem: { name: 'opt/test' } }),
        memory: Device.fromPartial({
          backend: 'pmem',
          slot: 10,
          persistentMemory: { sizeBytes: 16n << 20n },
        }),
        scratch: Device.fromPartial({ backend: 'scratch-file', slot: 11, disk: { serial: 'scratch' } }),
        loop: Device.fromPartial({ backend: 'loop-file', slot: 13, disk: { serial: 'loop' } }),
        other: Device.fromPartial({ backend: 'read-file', slot: 12, disk: { serial: 'read' } }),
      },
      backends: {
        ...specification.backends,
        content: Backend.fromPartial({ content: { path: privateImage('content') } }),
        pmem: Backend.fromPartial({ file: { path: memory, access: File_Access.READ_ONLY } }),
        'loop-file': file(loop),
        'scratch-file': Backend.fromPartial({
          file: { path: privateImage('scratch'), access: File_Access.SCRATCH },
        }),
        'read-file': Backend.fromPartial({
          file: { path: privateImage('read'), access: File_Access.READ_ONLY },
        }),
      },
    }))
    expect(statusOf(qemuPid).get('Uid')).toContain(`${uid}`)
    expect(backends['loop-file']).toMatchObject({ health: Health.READY, sizeBytes: 16n << 20n })
    await instances.remove('many', ADMIN)
  })

  it('is refused persistent memory that only root may read, by the path', async () => {
    const memory = privateImage('private-memory')
    const made = ensure('refused', (specification) => ({
      devices: {
        ...specification.devices,
        memory: Device.fromPartial({
          backend: 'pmem',
          slot: 10,
          persistentMemory: { sizeBytes: 16n << 20n },
        }),
      },
      backends: {
        ...specification.backends,
        pmem: Backend.fromPartial({ file: { path: memory, access: File_Access.READ_ONLY } }),
      },
    }))
    await expect(made).rejects.toThrow(`qemu: ${memory}: EACCES`)
  })

  it('is connected to a daemon of the host, at the start and when that is plugged in', async () => {
    const program = await findVsockDaemon(() => {})
    const daemons = ['first', 'second'].map((name, index) => {
      const socket = join(state, `${name}.sock`)
      const vm = `guest-cid=${70_000 + index},socket=${socket},uds-path=${join(state, `${name}.guest`)}`
      return { socket, process: spawn(program, ['--vm', vm], { stdio: 'ignore' }) }
    })
    const [first, second] = daemons.map(({ socket }) => Backend.fromPartial({ vhostUser: { socket } }))
    try {
      for (const { socket } of daemons) {
        await expect.poll(() => existsSync(socket)).toBe(true)
        chmodSync(socket, 0o600)
      }
      const vsock = (place: object) => Device.fromPartial({ backend: 'user', vsock: {}, ...place })
      await ensure('user', ({ devices, backends }) => ({
        devices: { ...devices, vsock: vsock({ slot: 10 }) },
        backends: { ...backends, user: first ?? Backend.create() },
      }))
      await ensure('plugged', () => ({}))
      const device = vsock({ port: 'port' })
      const request = { key: 'plugged', deviceKey: 'vsock', device, backend: second }
      expect((await instances.plug(request, ADMIN)).backends.user?.health).toBe(Health.READY)
    } finally {
      for (const key of ['user', 'plugged']) await instances.remove(key, ADMIN).catch(() => {})
      for (const { process: daemon } of daemons) daemon.kill('SIGKILL')
    }
  })

  it('is root where it serves a folder itself', async () => {
    const { uid, qemuPid, warnings } = await ensure('folder', ({ devices, backends }) => ({
      devices: {
        ...devices,
        share: Device.fromPartial({ backend: 'tree', slot: 10, share: { tag: 'tree' } }),
      },
      backends: { ...backends, tree: Backend.fromPartial({ folder: { path: disks } }) },
    }))
    expect(uid).toBeGreaterThan(0)
    expect(statusOf(qemuPid).get('Uid')).toBe('0\t0\t0\t0')
    expect(warnings).toEqual(['backends.tree: QEMU serves this folder itself, and is root for that'])
    await instances.remove('folder', ADMIN)
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
    // Of a guest without a driver of its vsock, which no caller of ConnectAgent dials.
    const opened = openSocketOf(statSync(join(folder, 'run')).uid, path)
    await expect(opened).rejects.toMatchObject({ code: 'PERMISSION_DENIED' })
    expect(connections).toBe(0)
    server.close()
  })
})
