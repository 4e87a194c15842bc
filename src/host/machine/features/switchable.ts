import { refuse } from '../../spec/component-path.ts'
import { boolean, either, fieldPath, object, optional, type Shape } from '../document/shape.ts'

type Fields = Parameters<typeof object>[0]

/** Fields of a feature that `true` and `false` turn on and off. */
export function switchable<F extends Fields>(fields: F) {
  const full = object({ ...fields, enabled: optional(boolean) as Shape<boolean | undefined> })
  const long: typeof full = {
    ...full,
    read: (value, at) => {
      const wish = full.read(value, at)
      const other = Object.keys(wish).find((name) => name !== 'enabled')
      if (!isOn(wish) && other !== undefined) refuse(fieldPath(at, other), 'of a feature that is not enabled')
      return wish
    },
  }
  return either(boolean, long, (enabled, at) => full.read({ enabled }, at))
}

/** Whether a feature is wished: by `true`, by an object, or without a wish by default. */
export function isOn(
  wish: { readonly enabled?: boolean | undefined } | undefined,
  byDefault = false,
): boolean {
  return wish === undefined ? byDefault : (wish.enabled ?? true)
}
