import { describe, expect, it } from 'vitest'
import { neverAborted } from '../../../src/base/abort.ts'
import { address, anInterface, guestNetwork } from '../../support/handlers/network/guest-network.ts'

describe('listInterfaces', () => {
  it('lists every link with its addresses, each with its own family', async () => {
    const guest = await guestNetwork('eth0')
    const IPAddresses = [address('10.0.0.2/24'), address('fd00::2/64')]
    await guest.handlers.updateInterface(anInterface({ mtu: 1400n, IPAddresses }), neverAborted)
    const blank = { device: '', devicePath: '', type: '', rawFlags: 0 }
    expect(guest.handlers.listInterfaces()).toEqual([
      { ...blank, name: 'lo', hwAddr: '00:00:00:00:00:00', mtu: 65536n, IPAddresses: [] },
      {
        ...blank,
        name: 'eth0',
        hwAddr: '02:00:00:00:00:02',
        mtu: 1400n,
        IPAddresses: [
          { family: 0, address: '10.0.0.2', mask: '24' },
          { family: 1, address: 'fd00::2', mask: '64' },
        ],
      },
    ])
  })
})
