import { execFileSync } from 'node:child_process'
import { existsSync, mkdirSync, readdirSync } from 'node:fs'
import { connect } from 'node:net'
import { join } from 'node:path'
import { afterEach, describe, expect, it } from 'vitest'
import {
  type AttachResponse,
  Backend,
  ChangeStateRequest_Change as Change,
  Device,
  BackendStatus_Health as Health,
  type Nic,
  DeviceStatus_Plug as Plug,
  type Specification,
  State,
} from '../../../../src/gen/microvm/instance/v1/instance.ts'
import { readExits } from '../../../../src/host/instance/holder/holder-files.ts'
import type { Instances } from '../../../../src/host/instance/instances.ts'
import { temporaryFolder } from '../../../support/temporary-folder.ts'
import { ip, type MadeMachine, makeMachine } from '../../../support/wing/made-machine.ts'
import { addPasstStandIn, image } from '../../../support/wing/real-wing.ts'
import { ADMIN, file } from '../../../support/wing/requests.ts'
import { tinyGuest } from '../../../support/wing/tiny-guest.ts'

const undo: (() => void)[] = []

afterEach(() => {
  for (const each of undo.splice(0).reverse()) each()
})

const get = (instances: Instances) => instances.get('web', ADMIN)

function bridge(name: string): void {
  ip('link', 'add', name, 'type', 'bridge')
  undo.push(() => ip('link', 'del', name))
}

async function gone(machine: MadeMachine): Promise<void> {
  expect(await machine.remove()).toEqual([])
}

describe('machine pc-i440fx-7.2', () => {
  const board = (does: Parameters<typeof tinyGuest>[1]) => (specification: Specification, disks: string) => ({
    ...specification,
    board: specification.board && {
      ...specification.board,
      machine: 'pc-i440fx-7.2',
      kernel: tinyGuest(disks, does),
    },
    devices: { root: specification.devices.root ?? Device.create() },
  })

  it('takes a disk in a slot of its first bus', async () => {
    const all = await makeMachine(board('idle'))
    const { instances, disks } = all
    const device = Device.fromPartial({ backend: 'data-file', slot: 9, disk: { serial: 'data' } })
    const request = { key: 'web', deviceKey: 'data', device, backend: file(image(disks, 'data', 8)) }
    const plugged = await instances.plug(request, ADMIN)
    expect(plugged.backends['data-file']).toMatchObject({ health: Health.READY, sizeBytes: 8n * 2n ** 20n })
    await gone(all)
  })

  it('tells of a panic', async () => {
    const all = await makeMachine(board('panic'))
    await all.instances.changeState({ key: 'web', change: Change.RUN, graceMs: 0 }, ADMIN)
    await expect.poll(async () => (await get(all.instances)).state).toBe(State.STOPPED)
    expect((await get(all.instances)).reason).toBe('the guest panicked')
    await gone(all)
  })
})

describe('machine microvm', () => {
  it('tells of a panic by its console, takes no device, and is told not to be stable', async () => {
    const all = await makeMachine((specification, disks) => ({
      ...specification,
      board: specification.board && {
        ...specification.board,
        machine: 'microvm',
        kernel: tinyGuest(disks, 'panicText'),
      },
      devices: { console: Device.fromPartial({ backend: 'output', serial: {} }) },
      backends: { output: Backend.fromPartial({ console: {} }) },
    }))
    const { instances } = all
    expect((await get(instances)).warnings).toEqual([
      expect.stringContaining('has no versions'),
      expect.stringContaining('no vmgenid'),
    ])
    const device = Device.fromPartial({ backend: 'data-file', slot: 9, disk: { serial: 'data' } })
    const plugging = instances.plug({ key: 'web', deviceKey: 'data', device, backend: file('/x') }, ADMIN)
    await expect(plugging).rejects.toMatchObject({ code: 'UNIMPLEMENTED' })
    await instances.changeState({ key: 'web', change: Change.RUN, graceMs: 0 }, ADMIN)
    await expect.poll(async () => (await get(instances)).state).toBe(State.STOPPED)
    expect((await get(instances)).reason).toBe('the guest panicked')
    await gone(all)
  })
})

describe('a plugged disk', () => {
  it('is leaving until the guest is reset', async () => {
    const all = await makeMachine((specification) => specification)
    const { instances, disks } = all
    const device = Device.fromPartial({ backend: 'data-file', port: 'port', disk: { serial: 'data' } })
    const backend = file(image(disks, 'data', 8))
    await instances.plug({ key: 'web', deviceKey: 'data', device, backend }, ADMIN)
    const left = await instances.unplug({ key: 'web', deviceKey: 'data', graceMs: 50 }, ADMIN)
    expect(left.devices.data).toMatchObject({ plug: Plug.LEAVING })
    const reset = await instances.changeState({ key: 'web', change: Change.RESET, graceMs: 0 }, ADMIN)
    expect(reset.devices).not.toHaveProperty('data')
    // The backend is free again.
    await instances.plug({ key: 'web', deviceKey: 'data', device, backend }, ADMIN)
    await gone(all)
  })
})

describe('a card', () => {
  const mac = '52:54:00:00:00:09'
  const tap = (interfaceName: string, on: string) =>
    Backend.fromPartial({ tap: { interfaceName, bridge: on } })
  const withCard =
    (replaceable: boolean, filters: Partial<Nic> = {}) =>
    (specification: Specification) => ({
      ...specification,
      devices: {
        ...specification.devices,
        card: Device.fromPartial({ backend: 'net', slot: 7, nic: { mac, replaceable, ...filters } }),
      },
      backends: { ...specification.backends, net: tap('wingtap0', 'wingbr0') },
    })
  const portsOf = (name: string) =>
    ip('-o', 'link', 'show', 'master', name)
      .trim()
      .split('\n')
      .map((line) => line.split(/[:@ ]+/)[1])
  const filteredTaps = () =>
    [
      ...execFileSync('nft', ['list', 'ruleset'], { encoding: 'utf8' }).matchAll(/ingress device "(\w+)"/g),
    ].map(([, name]) => name)
  const replace = (instances: Instances, backend: Backend) =>
    instances.replaceBackend({ key: 'web', backendKey: 'net', backend }, ADMIN)

  it('has a tap that goes with QEMU, and that changes its bridge', async () => {
    bridge('wingbr0')
    bridge('wingbr1')
    const others = filteredTaps()
    const all = await makeMachine(withCard(false, { filters: ['no-mac-spoofing'] }))
    expect(filteredTaps()).toEqual([...others, 'wingtap0'])
    expect(portsOf('wingbr0')).toEqual(['wingtap0'])
    await replace(all.instances, tap('wingtap0', 'wingbr1'))
    expect([portsOf('wingbr1'), filteredTaps()]).toEqual([['wingtap0'], [...others, 'wingtap0']])
    await expect(replace(all.instances, tap('wingtap1', 'wingbr1'))).rejects.toMatchObject({
      code: 'UNIMPLEMENTED',
      message: expect.stringContaining('another netdev below a realized NIC does not exist in QEMU 7.2'),
    })
    await all.instances.changeState({ key: 'web', change: Change.KILL, graceMs: 0 }, ADMIN)
    expect([existsSync('/sys/class/net/wingtap0'), filteredTaps()]).toEqual([false, others])
    await all.instances.changeState({ key: 'web', change: Change.RUN, graceMs: 0 }, ADMIN)
    expect([portsOf('wingbr1'), filteredTaps()]).toEqual([['wingtap0'], [...others, 'wingtap0']])
    await gone(all)
    expect(filteredTaps()).toEqual(others)
  })

  it('takes another tap behind a hub, and keeps the old one when that fails', async () => {
    bridge('wingbr0')
    const others = filteredTaps()
    const all = await makeMachine(withCard(true, { filters: ['clean-traffic'], addresses: ['10.0.0.2'] }))
    expect(filteredTaps()).toEqual([...others, 'wingtap0'])
    await replace(all.instances, tap('wingtap1', 'wingbr0'))
    expect([portsOf('wingbr0'), filteredTaps()]).toEqual([['wingtap1'], [...others, 'wingtap1']])
    await expect(replace(all.instances, tap('wingtap2', 'no-bridge'))).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
    })
    expect([portsOf('wingbr0'), filteredTaps()]).toEqual([['wingtap1'], [...others, 'wingtap1']])
    expect((await get(all.instances)).specification?.backends.net).toEqual(tap('wingtap1', 'wingbr0'))
    await gone(all)
  })

  it.each([
    [true, Health.READY],
    [false, Health.DEAD],
  ])('has passt started again when it is replaceable (%s)', async (replaceable, health) => {
    undo.push(addPasstStandIn(join(temporaryFolder(), 'bin')))
    const all = await makeMachine((specification) => ({
      ...withCard(replaceable)(specification),
      backends: { ...specification.backends, net: Backend.fromPartial({ passt: {} }) },
    }))
    const [name = ''] = readdirSync(join(all.folder, 'instances'))
    const pid = async () =>
      (await readExits(join(all.folder, 'instances', name))).find((child) => child.name.startsWith('passt'))
        ?.pid
    const before = await pid()
    process.kill(Number(before), 'SIGKILL')
    const last = replaceable ? 'started again' : 'has ended'
    for await (const { changes } of all.instances.watch({ after: 0n, once: false }, ADMIN)) {
      if (changes.some(({ text }) => text.includes(last))) break
    }
    expect((await get(all.instances)).backends.net?.health).toBe(health)
    if (replaceable) expect(await pid()).not.toBe(before)
    await gone(all)
  })

  it('is refused while its interface exists', async () => {
    bridge('wingtap0')
    await expect(makeMachine(withCard(false))).rejects.toThrow('interface wingtap0 exists already')
    expect(existsSync('/sys/class/net/wingtap0')).toBe(true)
  })
})

describe('a folder that virtiofsd shares', () => {
  it('is served while the machine lives, and its daemon leaves nothing', async () => {
    const all = await makeMachine((specification, disks) => {
      mkdirSync(join(disks, 'shared'))
      return {
        ...specification,
        devices: {
          ...specification.devices,
          share: Device.fromPartial({ backend: 'folder', slot: 8, share: { tag: 'shared' } }),
        },
        backends: {
          ...specification.backends,
          folder: Backend.fromPartial({ virtiofsd: { path: join(disks, 'shared') } }),
        },
      }
    })
    expect((await get(all.instances)).backends.folder?.health).toBe(Health.READY)
    process.kill((await get(all.instances)).holderPid, 'SIGKILL')
    await expect.poll(async () => (await get(all.instances)).state).toBe(State.STOPPED)
    await all.instances.changeState({ key: 'web', change: Change.RUN, graceMs: 0 }, ADMIN)
    expect((await get(all.instances)).backends.folder?.health).toBe(Health.READY)
    await gone(all)
  })
})

describe('vsock by its daemon', () => {
  const withVsock = (specification: Specification) => ({
    ...specification,
    devices: { ...specification.devices, vsock: Device.fromPartial({ backend: 'link', slot: 9, vsock: {} }) },
    backends: { ...specification.backends, link: Backend.fromPartial({ vsockDaemon: {} }) },
  })

  it('gives each guest a context id, and says when it has no driver', async () => {
    const all = await makeMachine(withVsock)
    expect(await get(all.instances)).toMatchObject({ cid: 3, backends: { link: { health: Health.READY } } })
    const bytes = all.instances.connectAgent('web', nothing(), ADMIN)[Symbol.asyncIterator]()
    await expect(bytes.next()).rejects.toMatchObject({
      ...{ code: 'UNAVAILABLE', message: 'instance web: its guest has no driver of its vsock' },
    })
    await gone(all)
  })

  it('keeps what a stream carries, and sends it from an offset on', async () => {
    const all = await makeMachine(withVsock)
    const { instances, folder } = all
    const request = { key: 'web', container: 'c', exec: '', stream: 'stdout' }
    const { port } = await instances.allocatePort(request, ADMIN)
    const [name = ''] = readdirSync(join(folder, 'instances'))
    // As the daemon connects for the guest.
    const guest = connect(join(folder, 'instances', name, 'run', `vsock.sock_${port}`))
    guest.end('hello, world')
    await expect.poll(() => instances.streams('web', ADMIN)).toMatchObject([{ port, end: 12n, closed: true }])
    const answers: AttachResponse[] = []
    for await (const answer of instances.attach({ key: 'web', port, offset: 7n }, ADMIN)) answers.push(answer)
    expect(answers[0]?.offset).toBe(7n)
    expect(Buffer.concat(answers.map(({ data }) => data)).toString()).toBe('world')
    await gone(all)
  })
})

async function* nothing(): AsyncGenerator<Uint8Array> {}
