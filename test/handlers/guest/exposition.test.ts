import { describe, expect, it } from 'vitest'
import { itemMetric, printMetric } from '../../../src/handlers/guest/metrics/exposition.ts'

describe('printMetric', () => {
  it('prints the text format of Prometheus', () => {
    const labels = { disk: 'a"b\\c\nd', item: 'reads' }
    const text = printMetric({ name: 'kata_guest_diskstat', samples: [{ labels, value: 2n ** 64n }] })
    expect(text.split('\n')).toEqual([
      '# HELP kata_guest_diskstat Work of the disks; all but in_progress are counters.',
      '# TYPE kata_guest_diskstat untyped',
      'kata_guest_diskstat{disk="a\\"b\\\\c\\nd",item="reads"} 18446744073709551616',
      '',
    ])
  })

  it('prints a histogram with cumulative buckets', () => {
    const value = { bounds: [0.5, 1], counts: [2, 0, 1], sum: 7 }
    const text = printMetric({ name: 'microvm_agent_event_loop_delay_seconds', samples: [{ value }] })
    expect(text.split('\n').slice(2)).toEqual([
      'microvm_agent_event_loop_delay_seconds_bucket{le="0.5"} 2',
      'microvm_agent_event_loop_delay_seconds_bucket{le="1"} 2',
      'microvm_agent_event_loop_delay_seconds_bucket{le="+Inf"} 3',
      'microvm_agent_event_loop_delay_seconds_sum 7',
      'microvm_agent_event_loop_delay_seconds_count 3',
      '',
    ])
  })

  it('leaves out items and metrics without a value', () => {
    const items = [
      ['a', undefined],
      ['b', 1.5],
    ] as const
    expect(printMetric(itemMetric('kata_guest_load', items))).toBe(
      '# HELP kata_guest_load Load of the guest.\n# TYPE kata_guest_load gauge\nkata_guest_load{item="b"} 1.5\n',
    )
    expect(printMetric(itemMetric('kata_guest_load', []))).toBe('')
  })
})
