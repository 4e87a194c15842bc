import { refuse } from '../../spec/component-path.ts'
import { fieldPath, isObject } from '../document/shape.ts'

type Wishes = Readonly<Record<string, unknown>>

/**
 * The wishes of `features` with those of `domain`, which go first. Lists are merged item by item. Throws INVALID_ARGUMENT
 * for items that are of different types.
 */
export function mergeWishes(features: Wishes, domain: Wishes, at: string): Wishes {
  return mergeObjects(features, domain, `${at}.features`)
}

function mergeObjects(before: Wishes, after: Wishes, at: string): Wishes {
  const merged: Record<string, unknown> = { ...before }
  for (const [name, value] of Object.entries(after)) {
    if (value !== undefined) merged[name] = mergeValues(merged[name], value, fieldPath(at, name))
  }
  return merged
}

function mergeValues(before: unknown, after: unknown, at: string): unknown {
  if (Array.isArray(before) && Array.isArray(after)) {
    const length = Math.max(before.length, after.length)
    return Array.from({ length }, (_, index) =>
      index < after.length ? mergeValues(before[index], after[index], `${at}[${index}]`) : before[index],
    )
  }
  if (!isObject(before) || !isObject(after)) return after
  // What stands behind a device is of one kind: the fields of another mean nothing.
  if (before.kind !== after.kind) return after
  const [one, other] = [before.type, after.type]
  if (/\]$/.test(at) && one !== undefined && other !== undefined && one !== other) {
    refuse(`${at}.type`, `${one}: domain has ${other} in its place`)
  }
  return mergeObjects(before, after, at)
}
