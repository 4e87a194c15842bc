import { either, integer, object } from '../../document/shape.ts'
import { feature } from '../feature.ts'

const count = integer(0, 64)

export const iothreads = feature({
  name: 'iothreads',
  summary: 'how many threads of QEMU serve the disks, which take them in turn',
  shape: either(count, object({ count }), (short) => ({ count: short })),
  expand: (draft, wish) => (wish === undefined ? draft : { ...draft, iothreads: wish.count }),
})
