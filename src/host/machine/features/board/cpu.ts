import { didYouMean } from '../../../../base/suggest.mjs'
import { refuse, shown } from '../../../spec/component-path.ts'
import { MAX_CPUS } from '../../../spec/limits.ts'
import {
  boolean,
  either,
  integer,
  object,
  oneOf,
  optional,
  type Read,
  record,
  type Shape,
  text,
} from '../../document/shape.ts'
import { catalogueName } from '../../document/words.ts'
import { withNote } from '../draft.ts'
import { feature } from '../feature.ts'

const count = integer(1, MAX_CPUS)
const pool = object({ pool: optional(catalogueName) })
const exclusive: Shape<Read<typeof pool> | undefined> = {
  read: (value, at) => {
    if (typeof value === 'string') return { pool: catalogueName.read(value, at) }
    if (typeof value !== 'boolean') return pool.read(value, at)
    return value ? {} : undefined
  },
  schema: { anyOf: [boolean.schema, catalogueName.schema, pool.schema] },
}

/** What QEMU sets of a CPU besides the features that its guest sees. */
const NO_FEATURE =
  /^(?:check|enforce|pmu|migratable|realized|hotplug\w*|l3-cache|legacy-cache|cpuid-0xb|tcg-cpuid|lmce|(?:host|fill|full|x|xen|hv|kvm|vmware|start)[-_].*|kvm|kvmclock-stable-bit)$/

/** QEMU wants x2APIC for more, which its emulation has not. */
const MAX_APIC_ID = 254

export const cpu = feature({
  name: 'cpu',
  summary: 'a count; or model, features, topology, count and how many are present at the start',
  shape: either(
    count,
    object({
      model: optional(text(/^[A-Za-z0-9][\w.-]{0,63}$/, 'a CPU model of QEMU')),
      match: optional(oneOf(['exact'])),
      features: optional(record(boolean)),
      count: optional(count),
      present: optional(count),
      topology: optional(
        object({ sockets: optional(count), cores: optional(count), threads: optional(count) }),
      ),
      /** Of a pool of the host's catalogue, by its name or of any that the tenant may use. */
      exclusive: optional(exclusive),
    }),
    (short) => ({ count: short }),
  ),
  expand: (draft, wish = {}, { at, facts }) => {
    const isUnversioned = draft.board.machine === 'microvm'
    const { model: usual, unversionedModel } = draft.defaults.cpu
    const model = wish.model ?? (isUnversioned ? unversionedModel : usual)
    const models = facts.cpuModels
    if (models !== undefined && !models.includes(model)) {
      refuse(
        `${at}.model`,
        `${shown(model)}: unknown here${didYouMean(model, models, 'see qemu-system-x86_64 -cpu help')}`,
      )
    }
    const odd = Object.keys(wish.features ?? {}).find((name) => !/^[\w.-]{1,64}$/.test(name))
    if (odd !== undefined) refuse(`${at}.features`, `${shown(odd)}: want the name of a CPU feature`)
    const word = Object.keys(wish.features ?? {}).find((name) => NO_FEATURE.test(name))
    if (word !== undefined)
      refuse(`${at}.features.${word}`, 'a setting of QEMU and no feature of a CPU, want such as aes or avx2')
    const { cores = 1, threads = 1, sockets } = wish.topology ?? {}
    const { count: total = (sockets ?? 1) * cores * threads } = wish
    const isBare = wish.topology === undefined
    const topology = isBare
      ? { sockets: 1, cores: total, threads: 1 }
      : { sockets: sockets ?? Math.ceil(total / cores / threads), cores, threads }
    const product = topology.sockets * topology.cores * topology.threads
    if (product !== total || product > MAX_CPUS) {
      refuse(
        `${at}.topology`,
        `${topology.sockets} × ${topology.cores} × ${topology.threads} is ${product}, want ${Math.min(total, MAX_CPUS)} CPUs`,
      )
    }
    const last = lastApicId(topology)
    if (last > MAX_APIC_ID) {
      refuse(`${at}.topology`, `its last CPU has APIC id ${last}, want at most ${MAX_APIC_ID}`)
    }
    const present = wish.present ?? total
    if (present > total) refuse(`${at}.present`, `${present}: want the count, ${total}, or less`)
    if (present < total && isUnversioned) refuse(`${at}.present`, 'machine microvm has no room for CPUs')
    // A thread that begins later would run where others run until it is moved.
    if (present < total && wish.exclusive !== undefined)
      refuse(`${at}.present`, `${present}: exclusive CPUs are all present, want ${total}`)
    const match = model === 'host' || model === 'max' ? 'host' : 'exact'
    if (match === 'host' && wish.match === 'exact')
      refuse(`${at}.match`, `exact: model ${model} is another on another host`)
    const changed = {
      ...draft,
      cpu: {
        ...({ model, match, features: wish.features ?? {}, count: total, present, topology } as const),
        ...(wish.exclusive && { exclusive: wish.exclusive }),
      },
    }
    return match === 'exact'
      ? changed
      : withNote(changed, `not promised: CPU model ${model} is another on another host`)
  },
})

/** An APIC id has as many bits for each level as the level needs, so that numbers are left out. */
function lastApicId({
  cores,
  sockets,
  threads,
}: Readonly<Record<'sockets' | 'cores' | 'threads', number>>): number {
  const [coreBits, threadBits] = [cores, threads].map((count) => Math.ceil(Math.log2(count)))
  return (((sockets - 1) << (coreBits ?? 0)) | (cores - 1)) * 2 ** (threadBits ?? 0) + threads - 1
}
