import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync, readFileSync, truncateSync, writeFileSync } from 'node:fs'
import { connect, createServer, type Socket } from 'node:net'
import { dirname, join } from 'node:path'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { neverAborted } from '../../../../src/base/abort.ts'
import { LocalHolder } from '../../../../src/host/instance/holder/local-holder.ts'
import { deviceParts } from '../../../../src/host/qemu/device-parts.ts'
import { replaceableParts } from '../../../../src/host/qemu/netdev-parts.ts'
import { plugCommand, type QmpCommand, removeCommand } from '../../../../src/host/qemu/parts.ts'
import { type QemuHost, qemuArguments } from '../../../../src/host/qemu/qemu-arguments.ts'
import { QmpClient } from '../../../../src/host/qemu/qmp/client.ts'
import { findVsockDaemon } from '../../../../src/host/qemu/vsock/choose-link.ts'
import type { Backend, Board, VmSpec } from '../../../../src/host/spec/spec.ts'
import { nodeNames, type SpecKey, specKey } from '../../../../src/host/spec/spec-key.ts'
import { makeNetworkNamespace, type NetworkNamespace } from '../../../support/host/network-namespace.ts'
import { MACHINE_PARTS, specOf } from '../../../support/host/specs.ts'
import { temporaryFolder } from '../../../support/temporary-folder.ts'

const key = specKey
const UUID = '0b7e4a52-9c7e-4a63-8f3e-2f3f5d6a7b8c'
const folder = temporaryFolder()

describe('QEMU 7.2', () => {
  let namespace: NetworkNamespace
  let qemu: ChildProcess | undefined
  const daemons = new LocalHolder(folder)
  const closers: (() => unknown)[] = [() => daemons.end()]
  let starts = 0

  beforeAll(async () => {
    namespace = await makeNetworkNamespace()
    namespace.ip('link set lo up')
    const passt = createServer().listen(join(folder, 'passt.sock'))
    await once(passt, 'listening')
    closers.push(() => passt.close())
  })

  afterEach(async () => {
    if (qemu === undefined || qemu.exitCode !== null) return
    const ended = once(qemu, 'exit')
    qemu.kill('SIGKILL')
    await ended
  })

  afterAll(async () => {
    for (const close of closers) await close()
    await namespace?.close()
  })

  /** Daemons of a machine's own: they serve one machine. */
  async function hostFor(
    machine: string,
  ): Promise<{ readonly sockets: Map<SpecKey, string>; readonly ours: string }> {
    const own = join(folder, machine)
    mkdirSync(own)
    const socketOf = (name: string) => join(own, `${name}.sock`)
    const [virtiofsd, ours, vsockd] = [socketOf('virtiofsd'), socketOf('ours'), socketOf('vsockd')]
    await startVirtiofsd(virtiofsd)
    await startVirtiofsd(ours)
    const vm = `guest-cid=3,socket=${vsockd},uds-path=${join(own, 'vsock.sock')}`
    await startDaemon(vsockd, [await findVsockDaemon(() => {}), '--vm', vm])
    const sockets = new Map([
      [key('passt'), join(folder, 'passt.sock')],
      [key('virtiofsd'), virtiofsd],
      [key('vsockd'), vsockd],
    ])
    return { sockets, ours }
  }

  async function startVirtiofsd(socket: string): Promise<void> {
    const share = [`--socket-path=${socket}`, '-o', `source=${folder}`] as const
    await startDaemon(socket, ['/usr/lib/qemu/virtiofsd', ...share])
  }

  async function startDaemon(socket: string, argv: readonly [string, ...string[]]): Promise<void> {
    await daemons.start({ name: socket.replaceAll('/', '-'), argv, output: 'log' })
    await listening(socket)
  }

  async function start(
    spec: VmSpec,
    host: Partial<QemuHost>,
  ): Promise<(command: QmpCommand) => Promise<unknown>> {
    const socket = join(folder, `qmp-${++starts}.sock`)
    const facts = { acceleration: 'tcg', qmp: { socket }, isPaused: true, isKept: true, ...host } as const
    const argv = [...namespace.enter, 'qemu-system-x86_64', ...qemuArguments(spec, facts)]
    qemu = spawn(argv[0] ?? '', argv.slice(1), { stdio: ['ignore', 'ignore', 'pipe'] })
    let words = ''
    qemu.stderr?.on('data', (bytes) => {
      words += bytes
    })
    const ended = once(qemu, 'exit').then(() => Promise.reject(new Error(`QEMU ended: ${words}`)))
    ended.catch(() => {})
    const connection = await Promise.race([connected(socket), ended])
    // How QEMU ended says more than the end of the connection.
    const client = await QmpClient.open(connection, neverAborted).catch(() => ended)
    // The client's types have the commands that the tool itself uses.
    return ({ execute, arguments: args }) => client.execute(execute as 'quit', args, neverAborted)
  }

  async function nodesOf(run: (command: QmpCommand) => Promise<unknown>) {
    const nodes = await run({ execute: 'query-named-block-nodes', arguments: {} })
    return new Set((nodes as { readonly 'node-name': string }[]).map((node) => node['node-name']))
  }

  /** The specification with a device of each kind that the machine has, and with its files below the test's folder. */
  function wholeSpec(machine: keyof typeof MACHINE_PARTS, ours: string): VmSpec {
    const spec = specOf(MACHINE_PARTS[machine], { machine, ...bootFiles() })
    const backends = Object.entries(spec.backends).map(([name, backend]) => {
      const here: Backend = backend.kind === 'vhost-user' ? { ...backend, socket: ours } : inFolder(backend)
      return [name, here] as const
    })
    return { ...spec, backends: Object.fromEntries(backends) }
  }

  it.each(['pc-q35-7.2', 'pc-i440fx-7.2', 'microvm'] as const)(
    'makes all that %s has, by the names of the specification',
    async (machine) => {
      const { sockets, ours } = await hostFor(machine)
      const spec = wholeSpec(machine, ours)
      const run = await start(spec, { sockets })
      expect(await run({ execute: 'query-status', arguments: {} })).toMatchObject({ status: 'prelaunch' })
      const nodes = await nodesOf(run)
      for (const [name, backend] of Object.entries(spec.backends)) {
        const isDisk = backend.kind === 'file' && backend.access !== 'scratch' && !name.includes('memory')
        const { format, file } = nodeNames(key(name))
        expect([name, nodes.has(format), nodes.has(file)]).toEqual([name, isDisk, isDisk])
      }
      await run({ execute: 'quit', arguments: {} })
    },
  )

  it('replaces the file below a disk and the network behind a hub, and plugs a disk into a root port', async () => {
    const nic = {
      kind: 'nic',
      slot: 4,
      mac: '52:54:00:00:00:02',
      replaceable: true,
      backend: key('net'),
    } as const
    const disk = { kind: 'disk', slot: 3, serial: 'd', backend: key(`${UUID}-backend`) } as const
    const spec = specOf(
      [
        [UUID, disk, inFolder({ kind: 'file', path: '/d.img', access: 'read-write' })],
        ['nic', nic, { kind: 'tap', interfaceName: 'wing2' }],
        ['port', { kind: 'root-port', slot: 5 }],
      ],
      bootFiles(),
    )
    const run = await start(spec, {})
    const { format, file, otherFile } = nodeNames(disk.backend)
    const other = inFolder({ kind: 'file', path: '/other.img', access: 'read-write' })
    await run({
      execute: 'blockdev-add',
      arguments: { driver: 'file', 'node-name': otherFile, filename: other.kind === 'file' && other.path },
    })
    const reopened = { driver: 'raw', 'node-name': format, file: otherFile }
    await run({ execute: 'blockdev-reopen', arguments: { options: [reopened] } })
    await run({ execute: 'blockdev-del', arguments: { 'node-name': file } })
    expect(await nodesOf(run)).toEqual(new Set([format, otherFile]))

    const renamed: VmSpec = {
      ...spec,
      backends: { ...spec.backends, [nic.backend]: { kind: 'tap', interfaceName: 'wing3' } },
    }
    const removals = replaceableParts(spec, nic, {}).toReversed().map(removeCommand)
    for (const command of removals) if (command !== undefined) await run(command)
    for (const part of replaceableParts(renamed, nic, {})) await run(plugCommand(part))
    const links = namespace.show<{ readonly ifname: string }[]>('link show').map(({ ifname }) => ifname)
    expect([links.includes('wing2'), links.includes('wing3')]).toEqual([false, true])

    const plugged = { kind: 'disk', slot: 0, port: key('port'), serial: 'p', backend: key('p-file') } as const
    const larger: VmSpec = {
      ...spec,
      devices: { ...spec.devices, [key('p')]: plugged },
      backends: {
        ...spec.backends,
        [plugged.backend]: inFolder({ kind: 'file', path: '/p.img', access: 'read-only' }),
      },
    }
    for (const part of deviceParts(larger, key('p'), {})) await run(plugCommand(part))
    expect(await nodesOf(run)).toContain(nodeNames(plugged.backend).format)
  })

  it('plugs a daemon that reads the memory of a machine which shares it', async () => {
    const board = { machine: 'pc-i440fx-7.2', ...bootFiles() } as const
    const share = { kind: 'share', slot: 4, tag: 't', backend: key('virtiofsd') } as const
    const run = await start(specOf([], board), {})
    const spec = specOf([['s', share, { kind: 'virtiofsd', path: folder }]], board)
    const sockets = new Map([[share.backend, join(folder, 'virtiofsd.sock')]])
    await startVirtiofsd(join(folder, 'virtiofsd.sock'))
    const parts = deviceParts(spec, key('s'), { sockets })
    for (const part of parts) await run(plugCommand(part))
    expect(await run({ execute: 'query-memdev', arguments: {} })).toMatchObject([
      { id: 'memory', share: true },
    ])
  })
})

/** Waits until a daemon that serves one connection listens: a socket exists before (`__SO_ACCEPTCON` in /proc/net/unix). */
async function listening(path: string): Promise<void> {
  const isListening = () =>
    readFileSync('/proc/net/unix', 'utf8')
      .split('\n')
      .some((line) => line.split(' ')[3] === '00010000' && line.endsWith(` ${path}`))
  await expect.poll(isListening).toBe(true)
}

/** Waits until QEMU listens. */
async function connected(path: string): Promise<Socket> {
  const attempt = async () => {
    const socket = connect(path)
    try {
      await once(socket, 'connect')
      return socket
    } catch {
      return undefined
    }
  }
  let socket: Socket | undefined
  await expect.poll(async () => (socket = await attempt())).toBeDefined()
  if (socket === undefined) throw new Error('not connected')
  return socket
}

/** Files that QEMU accepts as a kernel and an initrd, which no guest runs. */
function bootFiles(): Pick<Board, 'kernel' | 'initrd'> {
  const image = Buffer.alloc(64 * 1024)
  // The header of the boot protocol (Documentation/arch/x86/boot.rst of Linux).
  image.writeUInt8(1, 0x1f1)
  image.write('HdrS', 0x202)
  image.writeUInt16LE(0x20f, 0x206)
  image.writeUInt8(1, 0x211)
  image.writeUInt32LE(0x7fff_ffff, 0x22c)
  image.writeUInt32LE(2047, 0x238)
  const [kernel, initrd] = [join(folder, 'kernel'), join(folder, 'initrd')]
  writeFileSync(kernel, image)
  writeFileSync(initrd, 'initrd')
  return { kernel, initrd }
}

const FILE_BYTES = 2 << 20

/** The backend with its file or folder made below the test's folder. */
function inFolder(backend: Backend): Backend {
  if (!('path' in backend)) return backend
  const path = join(folder, 'files', backend.path)
  const isFolder = backend.kind === 'folder' || backend.kind === 'virtiofsd'
  mkdirSync(isFolder ? path : dirname(path), { recursive: true })
  if (!isFolder) {
    writeFileSync(path, '')
    truncateSync(path, FILE_BYTES)
  }
  return { ...backend, path }
}
