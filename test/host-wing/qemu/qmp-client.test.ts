import type { Duplex } from 'node:stream'
import { describe, expect, it } from 'vitest'
import { neverAborted } from '../../../src/base/abort.ts'
import { QmpClient } from '../../../src/host/qemu/qmp/client.ts'
import { specKey } from '../../../src/host/spec/spec-key.ts'
import { duplexPair } from '../../support/rpc/duplex-pair.ts'
import { socketPair } from '../../support/rpc/socket-pair.ts'
import {
  growDisk,
  plugCpu,
  plugDisk,
  plugMemory,
  plugNic,
  unplugDisk,
} from '../../support/vm/hot-plug/hot-plug.ts'

/** Output of QEMU 7.2. */
const GREETING =
  '{"QMP": {"version": {"qemu": {"micro": 22, "minor": 2, "major": 7}, "package": "Debian 1:7.2+dfsg-7+deb12u18+b3"}, "capabilities": ["oob"]}}\r\n'
const SHUTDOWN =
  '{"timestamp": {"seconds": 1795254248, "microseconds": 658541}, "event": "SHUTDOWN", "data": {"guest": false, "reason": "host-qmp-quit"}}\r\n'
const UNKNOWN_DEVICE = '"error": {"class": "DeviceNotFound", "desc": "Device \'x\' not found"}'

interface Command {
  readonly execute: string
  readonly arguments: Record<string, unknown>
  readonly id: number
}

/** A client on a QEMU that answers each command with the lines of `answer`. */
async function open(answer: (command: Command) => readonly string[]): Promise<{
  readonly client: QmpClient
  readonly qemu: Duplex
  readonly commands: Command[]
}> {
  const [socket, qemu] = duplexPair()
  const commands: Command[] = []
  qemu.on('data', (chunk: Buffer) => {
    for (const line of chunk.toString().split('\n').filter(Boolean)) {
      const command: Command = JSON.parse(line)
      commands.push(command)
      const negotiation = command.execute === 'qmp_capabilities'
      for (const reply of negotiation ? [ok(command)] : answer(command)) qemu.write(reply)
    }
  })
  qemu.write(GREETING)
  return { client: await QmpClient.open(socket, neverAborted), qemu, commands }
}

function ok(command: Command, value: unknown = {}): string {
  return `{"return": ${JSON.stringify(value)}, "id": ${command.id}}\r\n`
}

describe('QmpClient', () => {
  it('is not told of what an earlier client has left, only of its own wrong lines', async () => {
    const stray = '{"error": {"class": "GenericError", "desc": "JSON parse error, stray \'-dd\'"}}\r\n'
    const { client: socket, server: qemu } = await socketPair()
    qemu.once('data', () => qemu.write(`${stray}{"return": {}, "id": 1}\r\n`))
    qemu.write(`${GREETING}${stray}`)
    const client = await QmpClient.open(socket, neverAborted)
    expect(client.isClosed).toBe(false)
    qemu.write(stray)
    await expect(client.ended).resolves.toMatchObject({ message: "QMP: JSON parse error, stray '-dd'" })
  })

  it('reads the last events of a QEMU that has ended, though a command comes too late for it', async () => {
    const { client: socket, server: qemu } = await socketPair()
    const events: string[] = []
    qemu.once('data', () => qemu.write('{"return": {}, "id": 1}\r\n'))
    qemu.write(GREETING)
    const client = await QmpClient.open(socket, neverAborted, { onEvent: ({ name }) => events.push(name) })
    await new Promise((resolve) => qemu.write(SHUTDOWN, resolve))
    qemu.destroy()
    await expect(client.execute('query-status', {}, neverAborted)).rejects.toMatchObject({
      code: 'UNAVAILABLE',
    })
    expect(events).toEqual(['SHUTDOWN'])
  })

  it('negotiates after the greeting, before anything else', async () => {
    const { commands } = await open(() => [])
    expect(commands).toEqual([{ execute: 'qmp_capabilities', arguments: {}, id: 1 }])
  })

  it('gives each answer to its command, in any order and in pieces', async () => {
    const asked: Command[] = []
    const { client, qemu } = await open((command) => {
      asked.push(command)
      return []
    })
    const first = client.execute('query-status', {}, neverAborted)
    const second = client.execute('query-status', {}, neverAborted)
    const bytes = asked.toReversed().map((command) => ok(command, { status: `${command.id}`, running: true }))
    for (const byte of Buffer.from(bytes.join(''))) qemu.write(Buffer.of(byte))
    expect([(await first).status, (await second).status]).toEqual(['2', '3'])
  })

  it("rejects with QEMU's text", async () => {
    const { client } = await open((command) => [`{"id": ${command.id}, ${UNKNOWN_DEVICE}}\r\n`])
    await expect(client.execute('device_del', { id: 'x' }, neverAborted)).rejects.toThrow(
      "device_del: Device 'x' not found",
    )
  })

  it('passes on events', async () => {
    const { client, qemu } = await open(() => [])
    const shutdown = client.event((event) => event.name === 'SHUTDOWN', neverAborted)
    qemu.write(SHUTDOWN)
    expect((await shutdown).data).toEqual({ guest: false, reason: 'host-qmp-quit' })
  })

  it('rejects everything that waits when the connection ends', async () => {
    const { client, qemu } = await open(() => [])
    const command = client.execute('query-status', {}, neverAborted)
    const event = client.event(() => true, neverAborted)
    qemu.destroy()
    client.close()
    await expect(command).rejects.toMatchObject({ code: 'UNAVAILABLE' })
    await expect(event).rejects.toMatchObject({ code: 'UNAVAILABLE' })
    await expect(client.execute('quit', {}, neverAborted)).rejects.toMatchObject({ code: 'UNAVAILABLE' })
  })

  it('ends on bytes that are not QMP', async () => {
    const { client, qemu } = await open(() => [])
    const command = client.execute('query-status', {}, neverAborted)
    qemu.write('hello\n')
    await expect(command).rejects.toThrow('QMP: not JSON: hello')
  })

  it('lets nothing wait for a command that could not be sent', async () => {
    const { client } = await open(() => [])
    const unhandled: unknown[] = []
    const onUnhandled = (reason: unknown) => void unhandled.push(reason)
    process.on('unhandledRejection', onUnhandled)
    const descriptor = { native: { sendFd: () => -32 }, fd: 0 }
    const passed = client.pass({ execute: 'add-fd', arguments: {} }, descriptor, neverAborted)
    await expect(passed).rejects.toMatchObject({ code: 'UNAVAILABLE' })
    client.close()
    await new Promise((resolve) => setTimeout(resolve, 10))
    process.off('unhandledRejection', onUnhandled)
    expect(unhandled).toEqual([])
  })

  it('stops waiting when the signal fires', async () => {
    const { client } = await open(() => [])
    const abort = new AbortController()
    const command = client.execute('quit', {}, abort.signal)
    abort.abort(new Error('enough'))
    await expect(command).rejects.toThrow('enough')
  })
})

describe('plugDisk and unplugDisk', () => {
  const disk = {
    key: specKey('hot'),
    device: { kind: 'disk', slot: 0, serial: 'hot', backend: specKey('hot-file') },
    backend: { kind: 'file', path: '/d', access: 'read-write' },
    bus: specKey('port'),
  } as const

  it('opens the file, then plugs the device into its root port', async () => {
    const { client, commands } = await open((command) => [ok(command)])
    await plugDisk(client, disk, neverAborted)
    expect(commands.slice(1).map(({ execute, arguments: args }) => [execute, args])).toEqual([
      [
        'blockdev-add',
        {
          driver: 'raw',
          'node-name': 'name-hot-file',
          'read-only': false,
          file: { driver: 'file', filename: '/d' },
        },
      ],
      [
        'device_add',
        {
          driver: 'virtio-blk-pci',
          id: 'name-hot',
          drive: 'name-hot-file',
          serial: 'hot',
          addr: '0x0',
          bus: 'name-port',
          'disable-legacy': 'on',
        },
      ],
    ])
  })

  it('closes the file again when the device cannot be plugged in', async () => {
    const { client, commands } = await open((command) =>
      command.execute === 'device_add' ? [`{"id": ${command.id}, ${UNKNOWN_DEVICE}}\r\n`] : [ok(command)],
    )
    await expect(plugDisk(client, disk, neverAborted)).rejects.toThrow('device_add')
    expect(commands.at(-1)).toMatchObject({
      execute: 'blockdev-del',
      arguments: { 'node-name': 'name-hot-file' },
    })
  })

  it('throws the first error when the file cannot be closed either', async () => {
    const { client } = await open((command) =>
      command.execute === 'blockdev-add' ? [ok(command)] : [`{"id": ${command.id}, ${UNKNOWN_DEVICE}}\r\n`],
    )
    await expect(plugDisk(client, disk, neverAborted)).rejects.toThrow('device_add')
  })

  it("closes the file again even after the caller's signal has fired", async () => {
    const call = new AbortController()
    const { client, commands } = await open((command) => {
      if (command.execute !== 'device_add') return [ok(command)]
      call.abort(new Error('given up'))
      return []
    })
    await expect(plugDisk(client, disk, call.signal)).rejects.toThrow('given up')
    expect(commands.at(-1)?.execute).toBe('blockdev-del')
  })

  it('closes the file only after the guest has released the device', async () => {
    const deleted =
      '{"event": "DEVICE_DELETED", "data": {"device": "name-hot", "path": "/machine/peripheral/name-hot"}}\r\n'
    const { client, commands } = await open((command) =>
      command.execute === 'device_del' ? [ok(command), deleted] : [ok(command)],
    )
    await unplugDisk(client, disk, neverAborted)
    expect(commands.slice(1).map((command) => command.execute)).toEqual(['device_del', 'blockdev-del'])
  })
})

describe('plugNic', () => {
  const nic = {
    key: specKey('hot'),
    device: { kind: 'nic', slot: 7, mac: '52:54:00:00:00:07', backend: specKey('hot-tap') },
    backend: { kind: 'tap', interfaceName: 'tap7' },
    bus: undefined,
  } as const

  it('opens the tap interface, then plugs the device into its slot', async () => {
    const { client, commands } = await open((command) => [ok(command)])
    await plugNic(client, nic, neverAborted)
    expect(commands.slice(1).map(({ execute, arguments: args }) => [execute, args])).toEqual([
      ['netdev_add', { type: 'tap', id: 'name-hot-tap', ifname: 'tap7', script: 'no', downscript: 'no' }],
      [
        'device_add',
        {
          driver: 'virtio-net-pci',
          id: 'name-hot',
          netdev: 'name-hot-tap',
          mac: '52:54:00:00:00:07',
          addr: '0x7',
        },
      ],
    ])
  })

  it('closes the tap interface again when the device cannot be plugged in', async () => {
    const { client, commands } = await open((command) =>
      command.execute === 'device_add' ? [`{"id": ${command.id}, ${UNKNOWN_DEVICE}}\r\n`] : [ok(command)],
    )
    await expect(plugNic(client, nic, neverAborted)).rejects.toThrow('device_add')
    expect(commands.at(-1)).toMatchObject({ execute: 'netdev_del', arguments: { id: 'name-hot-tap' } })
  })
})

describe('growDisk', () => {
  it('resizes the block node of the disk', async () => {
    const { client, commands } = await open((command) => [ok(command)])
    const disk = {
      key: specKey('hot'),
      device: { kind: 'disk', slot: 0, serial: 'hot', backend: specKey('hot-file') },
      backend: { kind: 'file', path: '/d', access: 'read-write' },
      bus: specKey('port'),
    } as const
    await growDisk(client, disk, 65_536, neverAborted)
    expect(commands.at(-1)).toMatchObject({
      execute: 'block_resize',
      arguments: { 'node-name': 'name-hot-file', size: 65_536 },
    })
  })
})

describe('plugCpu', () => {
  const present = {
    type: 'max-x86_64-cpu',
    props: { 'socket-id': 0, 'core-id': 0 },
    'qom-path': '/machine/0',
  }
  const absent = (core: number) => ({ type: 'max-x86_64-cpu', props: { 'socket-id': 0, 'core-id': core } })
  const listing = (cpus: unknown) => (command: Command) =>
    command.execute === 'query-hotpluggable-cpus' ? [ok(command, cpus)] : [ok(command)]

  it('plugs in the lowest missing CPU at its place', async () => {
    const { client, commands } = await open(listing([absent(2), absent(1), present]))
    await plugCpu(client, specKey('cpu'), neverAborted)
    expect(commands.at(-1)).toMatchObject({
      execute: 'device_add',
      arguments: { driver: 'max-x86_64-cpu', id: 'name-cpu', 'socket-id': 0, 'core-id': 1 },
    })
  })

  it('throws when there is no room', async () => {
    const { client } = await open(listing([present]))
    await expect(plugCpu(client, specKey('cpu'), neverAborted)).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
    })
  })
})

describe('plugMemory', () => {
  it('makes a module, or a virtio device in a root port, from shared memory', async () => {
    const { client, commands } = await open((command) => [ok(command)])
    const size = 128 * 2 ** 20
    await plugMemory(client, { key: specKey('dimm'), sizeMib: 128 }, neverAborted)
    await plugMemory(client, { key: specKey('mem'), sizeMib: 128, rootPort: specKey('port') }, neverAborted)
    expect(commands.slice(1).map(({ arguments: args }) => args)).toEqual([
      { 'qom-type': 'memory-backend-memfd', id: 'name-dimm-backend', size, share: true },
      { driver: 'pc-dimm', id: 'name-dimm', memdev: 'name-dimm-backend' },
      { 'qom-type': 'memory-backend-memfd', id: 'name-mem-backend', size, share: true },
      {
        ...{ driver: 'virtio-mem-pci', id: 'name-mem', memdev: 'name-mem-backend' },
        ...{ bus: 'name-port', 'requested-size': size },
      },
    ])
  })

  it('removes its backend when the module cannot be plugged in', async () => {
    const { client, commands } = await open((command) =>
      command.execute === 'device_add' ? [`{"id": ${command.id}, ${UNKNOWN_DEVICE}}\r\n`] : [ok(command)],
    )
    const plugging = plugMemory(client, { key: specKey('dimm'), sizeMib: 128 }, neverAborted)
    await expect(plugging).rejects.toThrow('device_add')
    expect(commands.slice(1).map(({ execute, arguments: args }) => [execute, args.id])).toEqual([
      ['object-add', 'name-dimm-backend'],
      ['device_add', 'name-dimm'],
      ['object-del', 'name-dimm-backend'],
    ])
  })
})
