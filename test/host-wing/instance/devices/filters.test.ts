import { describe, expect, it } from 'vitest'
import {
  Backend,
  ChangeStateRequest_Change as Change,
  Device,
  State,
} from '../../../../src/gen/microvm/instance/v1/instance.ts'
import type { Instances } from '../../../../src/host/instance/instances.ts'
import { ADMIN, ensureRequest, specification } from '../../../support/wing/requests.ts'
import { FakeWing } from '../../../support/wing/wing.ts'

const MAC = '52:54:00:00:00:09'
const card = (slot: Readonly<{ slot: number } | { port: string }>) =>
  Device.fromPartial({
    backend: 'net',
    ...slot,
    nic: { mac: MAC, replaceable: true, filters: ['clean-traffic'], addresses: ['10.0.0.2'] },
  })
const tap = (interfaceName: string, bridge = 'br0') => Backend.fromPartial({ tap: { interfaceName, bridge } })

function request() {
  const { devices, backends } = specification()
  const parts = {
    devices: { ...devices, card: card({ slot: 7 }) },
    backends: { ...backends, net: tap('tap0') },
  }
  return ensureRequest('web', { specification: parts })
}

const change = (instances: Instances, to: Change) =>
  instances.changeState({ key: 'web', change: to, graceMs: 0 }, ADMIN)
const replace = (instances: Instances, backend: Backend) =>
  instances.replaceBackend({ key: 'web', backendKey: 'net', backend }, ADMIN)
const plug = (instances: Instances) =>
  instances.plug(
    { key: 'web', deviceKey: 'card', device: card({ port: 'port' }), backend: tap('tap0') },
    ADMIN,
  )
/** The interfaces whose frames are filtered. */
const filtered = ({ filters }: FakeWing) =>
  [...filters.values()].map((rules) => /"dev":"(\w+)"/.exec(JSON.stringify(rules))?.[1])
const FIELD = 'devices.card.nic.filters'

describe('the filters of a card', () => {
  it('are there while the machine is', async () => {
    const wing = new FakeWing()
    const instances = await wing.open()
    await instances.ensure(request(), ADMIN)
    expect(filtered(wing)).toEqual(['tap0'])
    await change(instances, Change.KILL)
    expect(filtered(wing)).toEqual([])
    wing.links.clear()
    await change(instances, Change.RUN)
    expect(filtered(wing)).toEqual(['tap0'])
    await instances.remove('web', ADMIN)
    expect(filtered(wing)).toEqual([])
  })

  it('are missed by name where they cannot be', async () => {
    const wing = new FakeWing()
    const instances = await wing.open()
    wing.hasFilters = false
    wing.filterFailure = new Error('nft: no such program')
    const missing = `${FIELD}: nft: no such program`
    await expect(instances.ensure(request(), ADMIN)).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
      message: missing,
    })
    wing.hasFilters = true
    wing.filterFailure = new Error('nft: not supported')
    const refused = { code: 'FAILED_PRECONDITION', message: `${FIELD}: nft: not supported` }
    await expect(instances.ensure(request(), ADMIN)).rejects.toMatchObject(refused)
    expect([wing.links, wing.holders.processes]).toEqual([new Map(), []])
  })

  it('follow the tap to another bridge, and to another tap', async () => {
    const wing = new FakeWing()
    const instances = await wing.open()
    await instances.ensure(request(), ADMIN)
    const rules = [...wing.filters]
    await replace(instances, tap('tap0', 'br1'))
    expect([wing.links.get('tap0'), [...wing.filters]]).toEqual(['br1', rules])
    await replace(instances, tap('tap1'))
    expect(filtered(wing)).toEqual(['tap1'])
    const message = `${FIELD}: only a tap can be filtered`
    await expect(replace(instances, Backend.fromPartial({ passt: {} }))).rejects.toMatchObject({ message })
    await instances.remove('web', ADMIN)
    expect(filtered(wing)).toEqual([])
  })

  it('are there before a card is plugged in, without which it is not', async () => {
    const wing = new FakeWing()
    const instances = await wing.open()
    await instances.ensure(ensureRequest('web'), ADMIN)
    wing.filterFailure = new Error('nft: not supported')
    await expect(plug(instances)).rejects.toThrow(`${FIELD}: nft: not supported`)
    expect(wing.holders.qemu.commands).not.toContain('device_add')
    wing.filterFailure = undefined
    await plug(instances)
    expect(filtered(wing)).toEqual(['tap0'])
    await instances.unplug({ key: 'web', deviceKey: 'card', graceMs: 1000 }, ADMIN)
    expect(filtered(wing)).toEqual([])
  })

  it('are made again by the next daemon, which stops a machine that it cannot filter', async () => {
    const wing = new FakeWing()
    const first = await wing.open()
    await first.ensure(request(), ADMIN)
    await first.close()
    const rules = [...wing.filters]
    wing.filters.clear()
    const second = await wing.open()
    expect([...wing.filters]).toEqual(rules)
    await second.close()
    wing.filterFailure = new Error('nft: not supported')
    const third = await wing.open()
    const { state, reason } = await third.get('web', ADMIN)
    expect([state, reason]).toEqual([State.STOPPED, `not taken in again: ${FIELD}: nft: not supported`])
  })
})
