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
import { vsockPlugged } from '../../../src/host/qemu/vsock/driver-ready.ts'
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

describe('a vsock device that was plugged in', () => {
  /** A machine whose guest takes its device when it is told to, and what has dialled its socket. */
  async function plugged(steps: readonly { readonly step: string }[]) {
    const folder = temporaryFolder()
    mkdirSync(dirname(guestSocket(folder)), { recursive: true })
    let isTaken = false
    let [dials, looked] = [0, 0]
    const server = createServer((socket) => {
      dials += 1
      socket.once('data', () => socket.write('OK 1\n'))
      socket.on('error', () => {})
    })
    await once(server.listen(guestSocket(folder)), 'listening')
    const looks = new Changes()
    const qmp = {
      command: async () => {
        looks.announce()
        if (looked++ === 0) throw new AgentError('INTERNAL', 'x-query-virtio-status: no such path')
        return { 'vhost-started': isTaken }
      },
    }
    const vsock = { device: { backend: 'link', vsock: {} }, backend: { vsockDaemon: {} } }
    const spec = specification({ devices: { vsock: vsock.device }, backends: { link: vsock.backend } })
    const instance = {
      ...{ context: { folder }, ending: neverAborted, machine: () => ({ qmp }), recorded: { steps } },
      record: { uid: 0, cid: 3, specification: spec },
    } as unknown as MachineInstance
    return {
      ...{ instance, looks, qmp: qmp as unknown as QmpClient },
      take: () => {
        isTaken = true
      },
      dials: () => dials,
      close: () => server.close(),
    }
  }

  it.each([[['replug']], [['repair']], [[]]])(
    'is not dialled before it is there and the guest has it: steps %j',
    async (names) => {
      const guest = await plugged(names.map((step) => ({ step })))
      if (names.length === 0) vsockPlugged({ qmp: guest.qmp, id: 'vsock', ending: neverAborted })
      const dialled = dialAgent(guest.instance, neverAborted)
      for (let look = 0; look < 3; look++) await guest.looks.next(neverAborted)
      expect(guest.dials()).toBe(0)
      guest.take()
      const connection = await dialled
      expect(guest.dials()).toBe(1)
      connection.destroy()
      guest.close()
    },
  )

  it('is dialled at once where it is there since the start', async () => {
    const guest = await plugged([])
    const connection = await dialAgent(guest.instance, neverAborted)
    expect(guest.dials()).toBe(1)
    connection.destroy()
    guest.close()
  })
})
