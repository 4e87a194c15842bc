import { describe, expect, it } from 'vitest'
import { itemGauge, printMetrics } from '../../../../src/handlers/guest/metrics/exposition.ts'

describe('printMetrics', () => {
  it('prints the text format of Prometheus', () => {
    const labels = { disk: 'a"b\\c\nd', item: 'reads' }
    const text = printMetrics([
      { name: 'scrapes', help: 'Calls.', type: 'counter', samples: [{ value: 3 }] },
      { name: 'disk', help: 'Work.', type: 'gauge', samples: [{ labels, value: 2n ** 64n }] },
    ])
    expect(text.split('\n')).toEqual([
      '# HELP scrapes Calls.',
      '# TYPE scrapes counter',
      'scrapes 3',
      '# HELP disk Work.',
      '# TYPE disk gauge',
      'disk{disk="a\\"b\\\\c\\nd",item="reads"} 18446744073709551616',
      '',
    ])
  })

  it('leaves out metrics without a value', () => {
    const items = [
      ['a', undefined],
      ['b', 1.5],
    ] as const
    expect(printMetrics([itemGauge('x', 'X.', items), itemGauge('y', 'Y.', [])])).toBe(
      '# HELP x X.\n# TYPE x gauge\nx{item="b"} 1.5\n',
    )
  })
})
