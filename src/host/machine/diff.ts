import { fieldPath, isObject } from './document/shape.ts'
import type { Machine } from './machine.ts'

/** A field that two machines have differently; undefined where one lacks it. */
export interface Difference {
  readonly path: string
  readonly before: unknown
  readonly after: unknown
}

/** All fields in which the machines differ, by their paths. A device that one of them lacks is one difference. */
export function differences(before: Machine, after: Machine): readonly Difference[] {
  return [...differencesAt('', before, after)]
}

/** The path of the first field in which two values differ; undefined for equal ones. */
export function firstFieldDifference(before: unknown, after: unknown): string | undefined {
  for (const { path } of differencesAt('', before, after)) return path
  return undefined
}

function* differencesAt(path: string, before: unknown, after: unknown): Generator<Difference> {
  if (isObject(before) && isObject(after)) {
    const names = [...new Set([...Object.keys(before), ...Object.keys(after)])].sort()
    for (const name of names) yield* differencesAt(fieldPath(path, name), before[name], after[name])
  } else if (Array.isArray(before) && Array.isArray(after)) {
    const length = Math.max(before.length, after.length)
    for (let index = 0; index < length; index++)
      yield* differencesAt(`${path}[${index}]`, before[index], after[index])
  } else if (before !== after) yield { path, before, after }
}
