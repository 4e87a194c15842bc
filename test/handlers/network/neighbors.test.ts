import { beforeEach, describe, expect, it } from 'vitest'
import { kernelError } from '../../../src/os/errors.ts'
import { aNeighbor, type GuestNetwork, guestNetwork } from '../../support/handlers/network/guest-network.ts'

describe('addNeighbors', () => {
  let guest: GuestNetwork
  beforeEach(async () => {
    guest = await guestNetwork('eth0')
  })

  it('adds permanent entries of both families', async () => {
    await guest.handlers.addNeighbors([aNeighbor('10.0.0.9'), aNeighbor('fd00::9')])
    expect(guest.os.network.neighbors()).toMatchObject([
      { family: 'ipv4', address: '10.0.0.9', hardwareAddress: '02:00:00:00:00:aa', state: 0x80 },
      { family: 'ipv6', address: 'fd00::9', state: 0x80 },
    ])
  })

  it('keeps state and flags of the request, and accepts an entry without a hardware address', async () => {
    const NTF_PROXY = 8
    await guest.handlers.addNeighbors([aNeighbor('10.0.0.9', { state: 0x40, flags: NTF_PROXY, lladdr: '' })])
    expect(guest.os.network.neighbors()).toMatchObject([{ state: 0x40, flags: 8, hardwareAddress: '' }])
  })

  it('replaces the entry for the same address', async () => {
    await guest.handlers.addNeighbors([aNeighbor('10.0.0.9')])
    await guest.handlers.addNeighbors([aNeighbor('10.0.0.9', { lladdr: '02:00:00:00:00:BB' })])
    expect(guest.os.network.neighbors()).toMatchObject([{ hardwareAddress: '02:00:00:00:00:bb' }])
  })

  it('undoes all entries when the kernel refuses one of hundreds', async () => {
    await guest.handlers.addNeighbors([aNeighbor('10.0.0.9')])
    const before = guest.state()
    const many = Array.from({ length: 300 }, (_, number) => aNeighbor(`10.0.${number >> 8}.${number & 255}`))
    guest.os.network.failWith = (call, about) =>
      call === 'replaceNeighbor' && about.startsWith('10.0.1.20 ') ? 'ENOBUFS' : undefined
    const changed = aNeighbor('10.0.0.9', { lladdr: '02:00:00:00:00:bb' })
    await expect(guest.handlers.addNeighbors([changed, ...many])).rejects.toThrow('ENOBUFS')
    expect(guest.state()).toEqual(before)
  })

  it('undoes a batch when the kernel’s answers are lost', async () => {
    await guest.handlers.addNeighbors([aNeighbor('10.0.0.9')])
    const before = guest.state()
    const { network } = guest.os
    const put = network.replaceNeighbors.bind(network)
    network.replaceNeighbors = (neighbors) => {
      put(neighbors.slice(0, 2))
      throw kernelError('add', 'by netlink', 'ENOBUFS')
    }
    const changed = aNeighbor('10.0.0.9', { lladdr: '02:00:00:00:00:bb' })
    const added = ['10.0.0.10', '10.0.0.11'].map((ip) => aNeighbor(ip))
    await expect(guest.handlers.addNeighbors([changed, ...added])).rejects.toThrow('ENOBUFS')
    expect(guest.state()).toEqual(before)
  })

  it.each([
    ['neighbors[1].toIPAddress ', aNeighbor('10.0.0.8', { toIPAddress: undefined })],
    ['neighbors[1].toIPAddress ', aNeighbor('')],
    ['neighbors[1].toIPAddress.address ', aNeighbor('ten')],
    ['neighbors[1].lladdr ', aNeighbor('10.0.0.8', { lladdr: '02-00' })],
    // The kernel would use only the first six bytes.
    ['neighbors[1].lladdr ', aNeighbor('10.0.0.8', { lladdr: '02:00:00:00:00:aa:bb' })],
    ['neighbors[1].state ', aNeighbor('10.0.0.8', { state: -1 })],
    ['neighbors[1].flags ', aNeighbor('10.0.0.8', { flags: 256 })],
  ])('refuses a wrong %s', async (field, wrong) => {
    await expect(guest.handlers.addNeighbors([aNeighbor('10.0.0.9'), wrong])).rejects.toMatchObject({
      code: 'INVALID_ARGUMENT',
      message: expect.stringContaining(field),
    })
    expect(guest.os.network.neighbors()).toEqual([])
  })

  it('names a missing link', async () => {
    const unknown = aNeighbor('10.0.0.8', { device: 'eth9' })
    await expect(guest.handlers.addNeighbors([unknown])).rejects.toMatchObject({
      code: 'INTERNAL',
      message: 'Link not found (Name: eth9)',
    })
  })

  it('records how many entries were added to each link', async () => {
    await guest.handlers.addNeighbors([aNeighbor('10.0.0.9'), aNeighbor('10.0.0.8')])
    expect(guest.record.settings()).toEqual([
      { kind: 'neighbors', subject: 'eth0', value: '2 added', source: 'rpc' },
    ])
  })
})
