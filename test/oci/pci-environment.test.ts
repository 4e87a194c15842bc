import { describe, expect, it } from 'vitest'
import { withGuestPciAddresses } from '../../src/oci/pci-environment.ts'

const addresses = new Map([
  ['0000:1a:02.3', '0000:01:00.0'],
  ['0000:1a:02.4', '0000:02:00.0'],
])
const translate = (...environment: string[]) => withGuestPciAddresses(environment, addresses)

describe('withGuestPciAddresses', () => {
  it.each([
    ['PCIDEVICE_VENDOR_NIC=0000:1a:02.3', 'PCIDEVICE_VENDOR_NIC=0000:01:00.0'],
    ['PCIDEVICE_X=0000:1A:02.4,0000:1a:02.3', 'PCIDEVICE_X=0000:02:00.0,0000:01:00.0'],
    ['PCIDEVICE_X=0000:1a:02.3,0000:ff:00.0,none', 'PCIDEVICE_X=0000:01:00.0,0000:ff:00.0,none'],
    ['PCIDEVICE_X=', 'PCIDEVICE_X='],
    ['MY_PCIDEVICE_X=0000:1a:02.3', 'MY_PCIDEVICE_X=0000:1a:02.3'],
    ['PATH=/bin', 'PATH=/bin'],
  ])('translates %s to %s', (entry, expected) => {
    expect(translate(entry)).toEqual([expected])
  })

  it('translates only the keys of the JSON in the info variable', () => {
    const info = '{ "0000:1a:02.3": {"generic": {"deviceID": "0000:1a:02.3"}}, "0000:ff:00.0":{} }'
    expect(translate(`PCIDEVICE_X_INFO=${info}`)).toEqual([
      'PCIDEVICE_X_INFO={ "0000:01:00.0": {"generic": {"deviceID": "0000:1a:02.3"}}, "0000:ff:00.0":{} }',
    ])
  })
})
