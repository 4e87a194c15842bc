import { execFileSync } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { dirname, join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { neverAborted } from '../../../src/base/abort.ts'
import { Changes } from '../../../src/base/changes.ts'
import { AgentError } from '../../../src/base/errors.ts'
import { METADATA_ITEM } from '../../../src/base/vm-metadata/point-to-point.ts'
import { Backend, Device, type Specification } from '../../../src/gen/microvm/instance/v1/instance.ts'
import { VMMetadata } from '../../../src/gen/vm.ts'
import { dialAgent } from '../../../src/host/instance/connect-agent.ts'
import type { MachineInstance } from '../../../src/host/instance/instance.ts'
import { guestSocket } from '../../../src/host/instance/machine/daemon-steps.ts'
import type { QmpClient } from '../../../src/host/qemu/qmp/client.ts'
import { vsockStarts } from '../../../src/host/qemu/vsock/driver-ready.ts'
import { qemuId, specKey } from '../../../src/host/spec/spec-key.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import { ADMIN, ensureRequest, specification } from '../../support/wing/requests.ts'
import { FakeWing } from '../../support/wing/wing.ts'

const V4 = { ip: '10.0.0.2', peerIp: '10.0.0.1' }
const V6 = { ip: 'fd00::2', peerIp: 'fd00::1' }

/** A machine with as many taps and the VM metadata of both families, or of no content. */
function described(
  wing: FakeWing,
  given: { taps: number; words?: string; content?: Uint8Array | 'fifo' },
): Specification {
  const path = join(wing.folder, 'metadata.pb')
  const metadata = VMMetadata.fromPartial({ name: 'web', networkConfig: { v4: V4, v6: V6 } })
  if (given.content === 'fifo') execFileSync('mkfifo', [path])
  else writeFileSync(path, given.content ?? VMMetadata.encode(metadata).finish())
  const { board, devices, backends } = specification()
  const taps = Array.from({ length: given.taps }, (_, index) => `tap${index}`)
  const cards = taps.map((name, index) => {
    const mac = `52:54:00:00:00:0${index}`
    return [`card-${name}`, Device.fromPartial({ backend: name, slot: 10 + index, nic: { mac } })] as const
  })
  const networks = taps.map((name) => [name, Backend.fromPartial({ tap: { interfaceName: name } })] as const)
  const item = Device.fromPartial({ backend: 'content', firmwareItem: { name: METADATA_ITEM } })
  return specification({
    board: board && { ...board, commandLine: given.words ?? '' },
    devices: { ...devices, ...Object.fromEntries(cards), item },
    backends: {
      ...backends,
      ...Object.fromEntries(networks),
      content: Backend.fromPartial({ content: { path } }),
    },
  })
}

async function connecting(wing: FakeWing, specification: Specification): Promise<unknown> {
  const instances = await wing.open()
  await instances.ensure(ensureRequest('web', { specification }), ADMIN)
  return await instances.connectAgent('web', nothing(), ADMIN)[Symbol.asyncIterator]().next()
}

describe('ConnectAgent without vsock', () => {
  it('wants a tap of its own, whose addresses the guest is told', async () => {
    for (const taps of [0, 2]) {
      const wing = new FakeWing()
      await expect(connecting(wing, described(wing, { taps }))).rejects.toMatchObject({
        code: 'FAILED_PRECONDITION',
        message: 'instance web: no vsock, and no tap of its own whose addresses its VM metadata has',
      })
    }
  })

  it.each(['', 'agent.server_peer=10.0.0.2', 'agent.server_peer=10.0.0.1 agent.server_peer=10.0.0.3'])(
    'is refused where others may connect too: %j',
    async (words) => {
      const wing = new FakeWing()
      await expect(connecting(wing, described(wing, { taps: 1, words }))).rejects.toMatchObject({
        code: 'FAILED_PRECONDITION',
        message:
          'instance web: board.command_line: other addresses may call its agent by TCP too, want agent.server_peer=10.0.0.1 or agent.server_peer=fd00::1',
      })
      expect(wing.addresses).toEqual(new Map([['tap0', [V4, V6]]]))
    },
  )

  it('dials from the one address that the agent serves, which this host has only beside a tap', async () => {
    const wing = new FakeWing()
    const words = 'agent.server_peer=10.0.0.9 agent.server_peer=FD00:0::1'
    await expect(connecting(wing, described(wing, { taps: 1, words }))).rejects.toMatchObject({
      code: 'UNAVAILABLE',
      message: 'bind EADDRNOTAVAIL fd00::1',
    })
  })

  it('dials a link-local address by the interface, which other machines may have too', async () => {
    const wing = new FakeWing()
    const v6 = { ip: 'fe80::2', peerIp: 'fe80::1' }
    const content = VMMetadata.encode(VMMetadata.fromPartial({ networkConfig: { v6 } })).finish()
    const words = 'agent.server_peer=fe80::1'
    await expect(connecting(wing, described(wing, { taps: 1, words, content }))).rejects.toMatchObject({
      code: 'UNAVAILABLE',
      message: expect.stringMatching(/fe80::[12]%tap0/),
    })
  })

  it.each([
    [Uint8Array.of(0xff), 'backends.content.content.path: VM metadata not read'],
    [new Uint8Array(65_537), 'backends.content.content.path: VM metadata not read: more than 65536 bytes'],
    ['fifo', /^backends.content.content.path: .*: a FIFO, want a file$/],
  ] as const)('has no machine whose VM metadata cannot be read', async (content, message) => {
    const wing = new FakeWing()
    await expect(connecting(wing, described(wing, { taps: 1, content }))).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
      message:
        typeof message === 'string' ? expect.stringContaining(message) : expect.stringMatching(message),
    })
  })
})

async function* nothing(): AsyncGenerator<Uint8Array> {}

describe('a guest with vsock by vhost-device-vsock', () => {
  /** A machine whose guest takes its device when it is told to, and how often its socket was dialled. */
  async function guestWith(status: (path: string) => unknown) {
    const folder = temporaryFolder()
    mkdirSync(dirname(guestSocket(folder)), { recursive: true })
    let dials = 0
    const server = createServer((socket) => {
      dials += 1
      socket.once('data', () => socket.write('OK 1\n'))
      socket.on('error', () => {})
    })
    await once(server.listen(guestSocket(folder)), 'listening')
    const looks = new Changes()
    const command = async ({ arguments: { path } }: { readonly arguments: { readonly path: string } }) => {
      looks.announce()
      return status(path)
    }
    const qmp = { command } as unknown as QmpClient
    const devices = { vsock: { backend: 'link', vsock: {} } }
    const instance = {
      ...{ context: { folder }, ending: neverAborted, machine: () => ({ qmp }) },
      recorded: { record: {} },
      record: { uid: 0, specification: specification({ devices, backends: { link: { vsockDaemon: {} } } }) },
    } as unknown as MachineInstance
    return { instance, looks, qmp, dials: () => dials, close: () => server.close() }
  }

  it.each(['boots or stands still', 'has just been given it'])(
    'is not dialled before its driver has the device: it %s',
    async (what) => {
      let [isTaken, isGone, looks] = [false, what === 'has just been given it', 0]
      const guest = await guestWith(() => {
        looks += 1
        if (isGone) throw new AgentError('INTERNAL', 'x-query-virtio-status: no such path')
        return { 'vhost-started': isTaken }
      })
      if (isGone) void vsockStarts({ qmp: guest.qmp, id: 'vsock', ending: neverAborted })
      const dialled = [dialAgent(guest.instance, neverAborted), dialAgent(guest.instance, neverAborted)]
      while (looks < 5) await guest.looks.next(neverAborted)
      isGone = false
      while (looks < 10) await guest.looks.next(neverAborted)
      expect(guest.dials()).toBe(0)
      isTaken = true
      for (const connection of await Promise.all(dialled)) connection.destroy()
      expect(guest.dials()).toBe(2)
      guest.close()
    },
  )

  it('is not dialled by a caller who gives up before', async () => {
    const guest = await guestWith(() => ({ 'vhost-started': false }))
    const caller = new AbortController()
    const dialled = dialAgent(guest.instance, caller.signal)
    await guest.looks.next(neverAborted)
    caller.abort(new Error('over'))
    await expect(dialled).rejects.toThrow('over')
    expect(guest.dials()).toBe(0)
    guest.close()
  })

  it.each([
    ['pc-q35-7.2', '/virtio-backend'],
    ['microvm', ''],
  ])('of machine %s is dialled at once where it has its driver', async (_, end) => {
    const guest = await guestWith((path) => {
      if (path !== `/machine/peripheral/${qemuId(specKey('vsock'))}${end}`)
        throw new AgentError('INTERNAL', 'x-query-virtio-status: no such path')
      return { 'vhost-started': true }
    })
    const connection = await dialAgent(guest.instance, neverAborted)
    expect(guest.dials()).toBe(1)
    connection.destroy()
    guest.close()
  })
})
