import { describe, expect, it } from 'vitest'
import { deviceName, parsePciPath, rootBusName } from '../../../src/hotplug/pci/pci-path.ts'

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

  it('reads a first segment of 20 or more, of at least three, as an extra root bus', () => {
    const path = parsePciPath('20/00/03')
    expect(path.rootBus).toBe(0x20)
    expect(path.slots).toHaveLength(2)
    expect(rootBusName(path)).toBe('0000:20')
  })

  it('reads a first segment below 20 as a slot', () => {
    const path = parsePciPath('1f/00/03')
    expect(path.rootBus).toBe(0)
    expect(path.slots).toHaveLength(3)
    expect(rootBusName(path)).toBe('0000:00')
  })

  it.each([
    ['', 'segment "", want'],
    ['2', 'segment "2", want'],
    ['002', 'segment "002", want'],
    ['02/', 'segment "", want'],
    ['/02', 'segment "", want'],
    ['02/0g', 'segment "0g", want'],
    ['02.', 'segment "02.", want'],
    ['02.10', 'segment "02.10", want'],
    ['0000:00:02.0', 'want SS or SS.F'],
    ['20', 'slot 20, want at most 1f'],
    ['20/03', 'slot 20, want at most 1f'],
    ['02/20', 'slot 20, want at most 1f'],
    ['02.8', 'function 8, want at most 7'],
    ['02/../03', 'segment "..", want'],
  ])('refuses %j', (text, reason) => {
    const parse = () => parsePciPath(text)
    expect(parse).toThrow(`PCI path "${text}"`)
    expect(parse).toThrow(reason)
    expect(parse).toThrow(expect.objectContaining({ code: 'INVALID_ARGUMENT' }))
  })
})

describe('deviceName', () => {
  it('is the name of the device in sysfs', () => {
    expect(deviceName('0000:01', { slot: 0x1e, func: 3 })).toBe('0000:01:1e.3')
  })
})
