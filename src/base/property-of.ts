/** An own member of a value that came from outside, such as parsed JSON; undefined when it has none of that name. */
export function propertyOf(value: unknown, name: string): unknown {
  return typeof value === 'object' && value !== null
    ? Object.entries(value).find(([key]) => key === name)?.[1]
    : undefined
}
