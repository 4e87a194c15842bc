import { describe, expect, it } from 'vitest'
import { deviceName, parsePciPath, rootBusName } from '../../src/hotplug/pci-path.ts'

describe('parsePciPath', () => {
  it('reads a device on the root bus', () => {
    expect(parsePciPath('02')).toEqual({ text: '02', rootBus: 0, slots: [{ slot: 2, func: 0 }] })
  })

  it('reads a device behind a bridge', () => {
    expect(parsePciPath('02/03').slots).toEqual([
      { slot: 2, func: 0 },
      { slot: 3, func: 0 },
    ])
  })

  it('reads hexadecimal slots and functions', () => {
    expect(parsePciPath('1f.7/0A').slots).toEqual([
      { slot: 31, func: 7 },
      { slot: 10, func: 0 },
    ])
  })

  it('takes a first of three segments from 20 on for the bus of an extra root complex', () => {
    const path = parsePciPath('20/00/03')
    expect(path.rootBus).toBe(0x20)
    expect(path.slots).toHaveLength(2)
    expect(rootBusName(path)).toBe('0000:20')
  })

  it('leaves a low first segment of three a slot', () => {
    const path = parsePciPath('1f/00/03')
    expect(path.rootBus).toBe(0)
    expect(path.slots).toHaveLength(3)
    expect(rootBusName(path)).toBe('0000:00')
  })

  it.each([
    ['', "segment '' is not"],
    ['2', "segment '2' is not"],
    ['002', "segment '002' is not"],
    ['02/', "segment '' is not"],
    ['/02', "segment '' is not"],
    ['02/0g', "segment '0g' is not"],
    ['02.', "segment '02.' is not"],
    ['02.10', "segment '02.10' is not"],
    ['0000:00:02.0', 'is not SS or SS.F'],
    ['20', 'slot 20 is above 1f'],
    ['20/03', 'slot 20 is above 1f'],
    ['02/20', 'slot 20 is above 1f'],
    ['02.8', 'function 8 is above 7'],
    ['02/../03', "segment '..' is not"],
  ])('refuses %j', (text, reason) => {
    const parse = () => parsePciPath(text)
    expect(parse).toThrow(`PCI path "${text}"`)
    expect(parse).toThrow(reason)
    expect(parse).toThrow(expect.objectContaining({ code: 'INVALID_ARGUMENT' }))
  })
})

describe('deviceName', () => {
  it('is what sysfs calls the device', () => {
    expect(deviceName('0000:01', { slot: 0x1e, func: 3 })).toBe('0000:01:1e.3')
  })
})
