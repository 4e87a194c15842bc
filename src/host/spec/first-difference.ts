import { pathOf } from './component-path.ts'
import { NO_LIMITS, REBOOT_LIMIT, type VmSpec } from './spec.ts'
import { specToProto } from './to-proto.ts'

/** The path of the first field in which two specifications differ, such as `devices.root.slot`; undefined for equal ones. */
export function firstDifference(a: VmSpec, b: VmSpec): string | undefined {
  const [one, other] = [a, b].map((spec) =>
    specToProto({
      ...spec,
      rebootLimit: spec.rebootLimit ?? REBOOT_LIMIT,
      limits: spec.limits ?? NO_LIMITS,
    }),
  )
  const names = differenceOf(one, other)
  const [field, ...rest] = names ?? []
  return field && pathOf(field, ...rest)
}

/** The names of the fields that lead to it. */
function differenceOf(a: unknown, b: unknown): readonly string[] | undefined {
  if (!isObject(a) || !isObject(b)) return a === b ? undefined : []
  const names = new Set([...Object.keys(a), ...Object.keys(b)])
  for (const name of [...names].sort()) {
    const difference = differenceOf(a[name], b[name])
    if (difference !== undefined) return [name, ...difference]
  }
  return undefined
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null
}
