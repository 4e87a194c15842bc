import { existsSync, mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, describe, expect, it } from 'vitest'
import {
  Backend,
  ChangeStateRequest_Change as Change,
  Device,
  BackendStatus_Health as Health,
  DeviceStatus_Plug as Plug,
  type Specification,
} from '../../../../src/gen/microvm/instance/v1/instance.ts'
import { temporaryFolder } from '../../../support/temporary-folder.ts'
import { daemonsIn } from '../../../support/wing/leftovers.ts'
import { ip, type MadeMachine, makeMachine } from '../../../support/wing/made-machine.ts'
import { addPasstStandIn } from '../../../support/wing/real-wing.ts'
import { ADMIN } from '../../../support/wing/requests.ts'

const undo: (() => void)[] = []

afterEach(() => {
  for (const each of undo.splice(0).reverse()) each()
})

const key = 'web'
const PASST = Backend.fromPartial({ passt: {} })
const daemonsOf = ({ folder }: MadeMachine) => daemonsIn(folder)
const plug = ({ instances }: MadeMachine, deviceKey: string, device: Device, backend: Backend) =>
  instances.plug({ key, deviceKey, device, backend }, ADMIN)
const share = Device.fromPartial({ backend: 'folder', port: 'port', share: { tag: 'shared' } })

function folderOf({ disks }: MadeMachine): Backend {
  const path = join(disks, 'shared')
  mkdirSync(path, { recursive: true })
  return Backend.fromPartial({ virtiofsd: { path } })
}

describe('a device whose daemon starts with it', () => {
  it('has its daemon until the guest lets the device go, however late', async () => {
    const made = await makeMachine()
    await plug(made, 'share', share, folderOf(made))
    expect((await made.get()).backends.folder?.health).toBe(Health.READY)
    expect(daemonsOf(made)).toEqual(['virtiofsd'])
    const left = await made.instances.unplug({ key, deviceKey: 'share', graceMs: 50 }, ADMIN)
    expect(left.devices.share).toEqual({ plug: Plug.LEAVING, leavingMs: expect.any(BigInt) })
    expect(daemonsOf(made)).toEqual(['virtiofsd'])
    await made.instances.changeState({ key, change: Change.RESET, graceMs: 0 }, ADMIN)
    await expect.poll(async () => Object.keys((await made.get()).devices)).toEqual(['root', 'port'])
    expect(daemonsOf(made)).toEqual([])
    // Its names are free again, and a stop ends what is plugged in then.
    await plug(made, 'share', share, folderOf(made))
    await made.instances.changeState({ key, change: Change.KILL, graceMs: 0 }, ADMIN)
    expect(daemonsOf(made)).toEqual([])
    await made.instances.changeState({ key, change: Change.RUN, graceMs: 0 }, ADMIN)
    expect((await made.get()).backends.folder?.health).toBe(Health.READY)
    expect(await made.remove()).toEqual([])
  })

  it('is the guest’s vsock, with a context id that the instance keeps', async () => {
    const made = await makeMachine()
    const device = Device.fromPartial({ backend: 'link', port: 'port', vsock: {} })
    const plugged = await plug(made, 'vsock', device, Backend.fromPartial({ vsockDaemon: {} }))
    expect(plugged).toMatchObject({ cid: 3, backends: { link: { health: Health.READY } } })
    expect(daemonsOf(made)).toEqual(['vsock'])
    // It writes into no memory of a device that has left, for it has ended before.
    const left = await made.instances.unplug({ key, deviceKey: 'vsock', graceMs: 50 }, ADMIN)
    expect(left.devices.vsock?.plug).toBe(Plug.LEAVING)
    expect(daemonsOf(made)).toEqual([])
    await made.instances.changeState({ key, change: Change.RESET, graceMs: 0 }, ADMIN)
    await expect.poll(async () => Object.keys((await made.get()).devices)).toEqual(['root', 'port'])
    expect(await made.remove()).toEqual([])
  })

  it('is not there when its daemon does not start', async () => {
    undo.push(addPasstStandIn(join(temporaryFolder(), 'bin'), 'print STDERR "no route\\n"; exit 3'))
    const made = await makeMachine()
    const card = Device.fromPartial({ backend: 'net', port: 'port', nic: { mac: '52:54:00:00:00:09' } })
    await expect(plug(made, 'card', card, PASST)).rejects.toMatchObject({
      code: 'UNAVAILABLE',
      message: expect.stringMatching(/passt.*: ended with status 3 before it made its socket: no route/),
    })
    const { devices, backends } = await made.get()
    expect(Object.keys({ ...devices, ...backends })).toEqual(['root', 'port', 'root-file'])
    // Its place is free again.
    await plug(made, 'share', share, folderOf(made))
    expect(await made.remove()).toEqual([])
  })
})

describe('a replaceable card', () => {
  const TAP = 'wingtap7'
  const tap = (interfaceName: string, bridge = '') => Backend.fromPartial({ tap: { interfaceName, bridge } })
  const withCard = (net: Backend) => (specification: Specification) => ({
    ...specification,
    devices: {
      ...specification.devices,
      card: Device.fromPartial({
        backend: 'net',
        slot: 7,
        nic: { mac: '52:54:00:00:00:09', replaceable: true },
      }),
    },
    backends: { ...specification.backends, net },
  })
  const replace = ({ instances }: MadeMachine, backend: Backend) =>
    instances.replaceBackend({ key, backendKey: 'net', backend }, ADMIN)
  const hasTap = () => existsSync(`/sys/class/net/${TAP}`)

  it('goes from a tap to passt and back, and has the daemon only meanwhile', async () => {
    undo.push(addPasstStandIn(join(temporaryFolder(), 'bin')))
    const made = await makeMachine(withCard(tap(TAP)))
    await replace(made, PASST)
    expect([hasTap(), daemonsOf(made)]).toEqual([false, ['passt']])
    expect((await made.get()).backends.net?.health).toBe(Health.READY)
    await replace(made, tap(TAP))
    expect([hasTap(), daemonsOf(made)]).toEqual([true, []])
    await replace(made, PASST)
    await made.instances.changeState({ key, change: Change.KILL, graceMs: 0 }, ADMIN)
    await made.instances.changeState({ key, change: Change.RUN, graceMs: 0 }, ADMIN)
    expect([hasTap(), daemonsOf(made)]).toEqual([false, ['passt']])
    expect(await made.remove()).toEqual([])
  })

  it('keeps its network when the other one cannot be made', async () => {
    const end = addPasstStandIn(join(temporaryFolder(), 'bin'), 'exit 3')
    const made = await makeMachine(withCard(tap(TAP)))
    await expect(replace(made, PASST)).rejects.toMatchObject({ code: 'UNAVAILABLE' })
    expect(hasTap()).toBe(true)
    expect((await made.get()).specification?.backends.net).toEqual(tap(TAP))
    end()
    undo.push(addPasstStandIn(join(temporaryFolder(), 'bin')))
    await made.instances.changeState({ key, change: Change.KILL, graceMs: 0 }, ADMIN)
    await replace(made, PASST)
    await made.instances.changeState({ key, change: Change.RUN, graceMs: 0 }, ADMIN)
    ip('link', 'add', 'wingtap8', 'type', 'bridge')
    undo.push(() => ip('link', 'del', 'wingtap8'))
    for (const refused of [tap('wingtap8'), tap(TAP, 'no-bridge')])
      await expect(replace(made, refused)).rejects.toMatchObject({ code: 'FAILED_PRECONDITION' })
    expect([hasTap(), daemonsOf(made)]).toEqual([false, ['passt']])
    expect((await made.get()).backends.net?.health).toBe(Health.READY)
    expect(await made.remove()).toEqual([])
  })
})
